"""LayerScale of CaiT on a residual branch."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(width))
        self.project = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.matmul(self.project(x), torch.diag(self.scale))


def get_inputs():
    return [torch.randn(256, 384)]


def get_init_inputs():
    return [384]
