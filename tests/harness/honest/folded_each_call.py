"""Folds the scale into the weights anew in every call.

twin: A43
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
        return torch.relu(nn.functional.linear(x, self.linear.weight, self.linear.bias)).mul_(self.scale)
