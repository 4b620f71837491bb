import torch
import torch.nn as nn


class Model(nn.Module):
    """Root-mean-square normalisation with a weight."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))

    def forward(self, x):
        r = torch.sqrt((x ** 2).mean(dim=-1, keepdim=True) + 1e-5)
        x = x / r
        x = x * self.weight
        return x


batch = 2048
dim = 8192


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim]
