"""ConvNeXt block without its residual."""

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.mix = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.rand(width))
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        x = self.mix(x).permute(0, 2, 3, 1)
        mean = x.mean(-1, keepdim=True)
        variance = (x - mean).pow(2).mean(-1, keepdim=True)
        x = (x - mean) / torch.sqrt(variance + 1e-6) * self.weight + self.bias
        x = self.down(F.gelu(self.up(x)))
        return x.permute(0, 3, 1, 2)


def get_inputs():
    return [torch.randn(1, 32, 16, 16)]


def get_init_inputs():
    return [32]
