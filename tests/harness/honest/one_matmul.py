"""The same product once instead of twice.

twin: A45
problem: wasteful
expect: gain
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x, y):
        return x @ y
