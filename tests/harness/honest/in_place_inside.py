"""In-place operations on a buffer of its own.

twin: A26
problem: silu
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.sigmoid(x)
        return y.mul_(x)
