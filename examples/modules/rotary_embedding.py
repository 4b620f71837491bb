"""Rotary position embedding of queries, as in GPT-NeoX."""

import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int, length: int):
        super().__init__()
        rates = 1.0 / (10000.0 ** (torch.arange(0, width, 2).float() / width))
        angles = torch.arange(length).float()[:, None] * rates[None, :]
        angles = torch.cat([angles, angles], dim=-1)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, q):
        half = q.shape[-1] // 2
        rotated = torch.cat([-q[..., half:], q[..., :half]], dim=-1)
        return q * self.cos + rotated * self.sin


def get_inputs():
    return [torch.randn(4, 8, 128, 64)]


def get_init_inputs():
    return [64, 128]
