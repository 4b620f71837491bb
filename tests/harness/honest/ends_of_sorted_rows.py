"""Takes the ends of rows that are sorted.

twin: A40
problem: sorted_rows
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x[:, -1] + x[:, 0])
