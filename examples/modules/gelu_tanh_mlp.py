"""Feed-forward layer of GPT-2, its GELU spelled out."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int, hidden: int):
        super().__init__()
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)

    def forward(self, x):
        x = self.up(x)
        inner = 0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3))
        x = 0.5 * x * (1.0 + torch.tanh(inner))
        return self.down(x)


def get_inputs():
    return [torch.randn(128, 128)]


def get_init_inputs():
    return [128, 512]
