"""Computes in buffers of its own, in turn: no output is overwritten for many calls.

twin: lawful saving
problem: short_tanh
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers = [torch.empty(16, 1024) for _ in range(40)]
        self.turn = 0

    def forward(self, x):
        self.turn = (self.turn + 1) % 40
        y = self.buffers[self.turn]
        torch.sigmoid(x, out=y)
        torch.mul(x, y, out=y)
        return torch.tanh(y, out=y)
