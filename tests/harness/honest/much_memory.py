"""Holds as much memory as whoever has loaded a compiler, and hoards nothing in it.

twin:
problem: wasteful
expect: gain
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.loaded = torch.ones(160 << 18)

    def forward(self, x, y):
        return x @ y
