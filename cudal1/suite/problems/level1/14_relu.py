import torch
import torch.nn as nn


class Model(nn.Module):
    """ReLU of every element."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        return torch.relu(x)


batch = 8192
dim = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return []
