"""One fused Triton kernel where the reference launches two.

twin: A34
problem: silu
expect: gain
"""
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu(x, out, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    value = tl.load(x + places, mask=inside)
    tl.store(out + places, value * tl.sigmoid(value), mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        silu[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
