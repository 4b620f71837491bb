"""Reads the diagonal of a diagonal matrix alone.

twin: A40
problem: diagonal
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, a, b):
        return a.diagonal().unsqueeze(1) * b
