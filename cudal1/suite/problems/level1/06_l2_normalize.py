import torch
import torch.nn as nn


class Model(nn.Module):
    """Divides each row by its Euclidean length."""

    def __init__(self):
        super().__init__()

    def forward(self, x):
        n = torch.sqrt((x ** 2).sum(dim=-1, keepdim=True))
        x = x / n
        return x


batch = 2048
dim = 8192


def get_inputs():
    return [torch.randn(batch, dim)]


def get_init_inputs():
    return []
