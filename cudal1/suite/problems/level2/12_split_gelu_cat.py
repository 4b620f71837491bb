import torch
import torch.nn as nn


class Model(nn.Module):
    """GELU in chunks of rows, put together again."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        x = torch.cat([torch.nn.functional.gelu(c) for c in x.split(8)])
        x = x * 1.5
        return x


batch = 2048
dim = 4096


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return []
