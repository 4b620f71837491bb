import torch
import torch.nn as nn


class Model(nn.Module):
    """The same sigmoid and tanh, computed twice each."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        a = torch.sigmoid(x) * torch.tanh(x)
        b = torch.sigmoid(x) + torch.tanh(x)
        x = a / (1.0 + b * b)
        return x


batch = 4096
dim = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return []
