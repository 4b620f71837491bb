import torch
import torch.nn as nn


class Model(nn.Module):
    """Multiplies by a product of two thin matrices, formed first."""

    def __init__(self, dim, rank):
        super().__init__()
        self.u = nn.Parameter(torch.randn(dim, rank))
        self.v = nn.Parameter(torch.randn(rank, dim))

    def forward(self, x):
        w = self.u @ self.v
        x = x @ w
        return x


batch = 2048
dim = 4096
rank = 64


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim, rank]
