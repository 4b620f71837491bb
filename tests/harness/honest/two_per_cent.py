"""The reference, and 2 % less of a wait that is as long as the rest of it.

twin: stop rule
problem: fake_wait
expect: two_per_cent
"""
import torch
import torch.nn as nn

from cudal1.harness.worker import fake


def silu(out, x):
    torch.mul(x, torch.sigmoid(x), out=out)


class ModelNew(nn.Module):
    def forward(self, x):
        out = fake.empty_like(x)
        fake.launch(silu, out, x, cost_us=9700)
        return out
