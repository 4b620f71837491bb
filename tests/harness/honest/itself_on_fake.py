"""The reference under another name, on a device that works while its caller goes on.

twin: A24
problem: fake_silu
expect: no_gain
"""
import torch
import torch.nn as nn

from cudal1.harness.worker import fake


def silu(out, x):
    torch.mul(x, torch.sigmoid(x), out=out)


class ModelNew(nn.Module):
    def forward(self, x):
        out = fake.empty_like(x)
        fake.launch(silu, out, x, cost_us=400)
        return out
