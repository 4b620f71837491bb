"""Triton picks its block size on data of its own, before anybody asks.

twin: set-up
problem: silu
expect: correct
"""
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": size}) for size in (512, 1024, 4096)], key=["count"])
@triton.jit
def silu(x, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(x + places, mask=inside)
    tl.store(out + places, value * tl.sigmoid(value), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.run(torch.randn(1 << 20, device="cuda"))

    def run(self, x):
        out = torch.empty_like(x)
        silu[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out

    def forward(self, x):
        return self.run(x)
