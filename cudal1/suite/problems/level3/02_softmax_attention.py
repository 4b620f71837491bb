import torch
import torch.nn as nn


class Model(nn.Module):
    """Attention from given queries, keys and values; softmax by steps."""

    def __init__(self):
        super().__init__()

    def forward(self, q, k, v):
        s = q @ k.transpose(-2, -1)
        s = s / q.shape[-1] ** 0.5
        m = s.max(dim=-1, keepdim=True).values
        e = torch.exp(s - m)
        p = e / e.sum(dim=-1, keepdim=True)
        x = p @ v
        return x


batch = 64
length = 1024
dim = 64


def get_inputs():
    return [torch.randn(batch, length, dim), torch.randn(batch, length, dim), torch.randn(batch, length, dim)]


def get_init_inputs():
    return []
