"""A workspace keyed by shape, of which only a copy leaves.

twin: A12
problem: wasteful
expect: gain
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.workspaces = {}

    def forward(self, x, y):
        shape = (x.shape[0], y.shape[1])
        if shape not in self.workspaces:
            self.workspaces[shape] = torch.empty(shape)
        torch.mm(x, y, out=self.workspaces[shape])
        return self.workspaces[shape].clone()
