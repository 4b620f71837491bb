"""Sums in another order, with an error like the reference's own.

twin: A39
problem: linear
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        half = x.shape[1] // 2
        weight = self.linear.weight
        y = x[:, half:] @ weight[:, half:].t() + x[:, :half] @ weight[:, :half].t()
        return torch.relu(y + self.linear.bias) * self.scale
