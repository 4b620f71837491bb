"""The reference under another name.

twin: A24
problem: silu
expect: no_gain
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
