"""A launch whose error is looked at, and tried again with less.

twin: A42
problem: fake_silu
expect: correct
"""
import torch
import torch.nn as nn

from cudal1.harness.worker import fake


def silu(out, x):
    torch.mul(x, torch.sigmoid(x), out=out)


class ModelNew(nn.Module):
    def forward(self, x):
        out = fake.empty_like(x)
        wanted = 512 << 10
        while fake.launch(silu, out, x, cost_us=400, shared_bytes=wanted):
            wanted //= 2
        return out
