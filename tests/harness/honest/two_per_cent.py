"""The reference with a kernel that is busy for 2 % less time.

twin: stop rule
problem: fake_wait
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
        fake.launch(silu, out, x, cost_us=9800)
        return out
