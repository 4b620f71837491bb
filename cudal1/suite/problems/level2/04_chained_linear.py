import torch
import torch.nn as nn


class Model(nn.Module):
    """Two linear layers with nothing between them."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.first = nn.Linear(dim, hidden)
        self.second = nn.Linear(hidden, dim)

    def forward(self, x):
        x = self.first(x)
        x = self.second(x)
        return x


batch = 2048
dim = 2048
hidden = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim, hidden]
