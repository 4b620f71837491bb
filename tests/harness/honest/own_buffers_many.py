"""Many outputs in buffers of its own, in turn: none is overwritten for many calls.

twin: lawful saving
problem: many_outputs
expect: correct
"""
import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        whole = [torch.empty(16, 2048) for _ in range(40)]
        self.buffers = [(y, y.unbind(0)) for y in whole]
        self.turn = 0

    def forward(self, x):
        self.turn = (self.turn + 1) % 40
        y, rows = self.buffers[self.turn]
        torch.mul(x, torch.sigmoid(x), out=y)
        return rows
