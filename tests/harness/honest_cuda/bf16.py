"""Half precision where the class allows it.

twin: A39
problem: linear
precision: half
expect: gain
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.scale = nn.Parameter(torch.ones(size))

    def forward(self, x):
        half = torch.bfloat16
        x = nn.functional.linear(x.to(half), self.linear.weight.to(half)).float()
        return torch.relu(x + self.linear.bias).mul_(self.scale)
