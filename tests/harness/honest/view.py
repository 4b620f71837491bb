"""A view where the reference returns a view.

twin: A44
problem: transpose
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x.transpose(0, 1)
