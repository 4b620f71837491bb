import torch
import torch.nn as nn


class Model(nn.Module):
    """Two projections of one input, gated by x times sigmoid."""

    def __init__(self, dim):
        super().__init__()
        self.gate = nn.Linear(dim, 2 * dim, bias=False)
        self.up = nn.Linear(dim, 2 * dim, bias=False)
        self.down = nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        g = self.gate(x)
        g = g * torch.sigmoid(g)
        x = self.down(g * self.up(x))
        return x


batch = 4096
dim = 1024


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim]
