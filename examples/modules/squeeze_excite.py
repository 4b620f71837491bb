"""Squeeze-and-excite block."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, channels: int, squeezed: int):
        super().__init__()
        self.down = nn.Linear(channels, squeezed)
        self.up = nn.Linear(squeezed, channels)

    def forward(self, x):
        scale = x.mean(dim=(2, 3))
        scale = torch.relu(self.down(scale))
        scale = torch.sigmoid(self.up(scale))
        return x * scale[:, :, None, None].expand_as(x)


def get_inputs():
    return [torch.randn(4, 64, 28, 28)]


def get_init_inputs():
    return [64, 16]
