"""A linear layer with LoRA's low-rank update."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int, rank: int):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width, width) / width)
        self.down = nn.Parameter(torch.rand(rank, width) / width)
        self.up = nn.Parameter(torch.rand(width, rank))

    def forward(self, x):
        update = torch.matmul(self.up, self.down)
        return torch.matmul(x, self.weight.t()) + torch.matmul(x, update.t())


def get_inputs():
    return [torch.randn(64, 512)]


def get_init_inputs():
    return [512, 8]
