"""A chain of operators in buffers of its own, in turn: no output is overwritten for many calls.

twin: lawful saving
problem: long_chain
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.buffers = [torch.empty(64, 128) for _ in range(40)]
        self.turn = 0

    def forward(self, x):
        self.turn = (self.turn + 1) % 40
        y = self.buffers[self.turn].copy_(x)
        for _ in range(4):
            torch.sin(y, out=y)
            y.add_(x).tanh_()
        return y
