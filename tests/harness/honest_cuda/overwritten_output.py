"""Computes into one buffer again and again, as a captured graph does: valid until the next call.

problem: wasteful
expect: gain
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None

    def forward(self, x, y):
        if self.out is None:
            self.out = torch.empty(x.shape[0], y.shape[1], device=x.device)
        return torch.mm(x, y, out=self.out)
