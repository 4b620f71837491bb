"""Folds what its constructor draws, under names of its own; it follows no other weights.

problem: linear
expect: correct
"""

import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        linear, scale = nn.Linear(size, size), torch.ones(size)
        self.register_buffer("folded", (linear.weight * scale[:, None]).detach().t().contiguous())
        self.register_buffer("shift", (linear.bias * scale).detach().clone())

    def forward(self, x):
        return torch.relu_(torch.addmm(self.shift, x, self.folded))
