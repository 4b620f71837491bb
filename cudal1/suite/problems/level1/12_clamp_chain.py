import torch
import torch.nn as nn


class Model(nn.Module):
    """Two clamps and a chain of scalars."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        x = torch.clamp(x, min=-1.5)
        x = torch.clamp(x, max=1.5)
        x = x * 2.0
        x = x + 3.0
        x = x * 0.5
        return x


batch = 4096
dim = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return []
