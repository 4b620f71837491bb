import torch
import torch.nn as nn


class Model(nn.Module):
    """Self-attention with explicit softmax, one head at a time."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        size = q.shape[-1] // self.heads
        y = []
        for h in range(self.heads):
            part = slice(h * size, (h + 1) * size)
            s = q[..., part] @ k[..., part].transpose(-2, -1) / size ** 0.5
            p = torch.softmax(s, dim=-1)
            y.append(p @ v[..., part])
        x = self.out(torch.cat(y, dim=-1))
        return x


batch = 16
length = 512
dim = 512
heads = 8


def get_inputs():
    return [torch.randn(batch, length, dim)]


def get_init_inputs():
    return [dim, heads]
