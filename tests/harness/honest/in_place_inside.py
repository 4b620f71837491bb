"""In-place operations on a buffer of its own.

problem: silu
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.sigmoid(x)
        return y.mul_(x)
