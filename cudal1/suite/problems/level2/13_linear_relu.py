import torch
import torch.nn as nn


class Model(nn.Module):
    """Linear and ReLU."""

    def __init__(self, dim):
        super().__init__()
        self.linear = nn.Linear(dim, dim)

    def forward(self, x):
        return torch.relu(self.linear(x))


batch = 2048
dim = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return [dim]
