"""Reads one half of a symmetric matrix.

twin: A40
problem: symmetric
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        lower = torch.tril(a)
        return torch.tanh(lower @ b + torch.tril(a, -1).T @ b)
