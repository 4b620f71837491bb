"""Triton kernels of `deviations` for GPUs: float64 arithmetic, each element read once.

The rows of x and y may lie apart; the elements of a row must lie side by side.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false
# Triton comes with PyTorch's CUDA builds alone, and its kernels are not called like functions
from __future__ import annotations

import torch
import triton
import triton.language as tl

from cudal1.harness.oracle.deviations import LEAST_BOUND, Distances

BLOCK = 4096


def distances(x_NK: torch.Tensor, y_NK: torch.Tensor) -> Distances:
    """Compute `deviations.distances` on a GPU."""
    count, length = x_NK.shape
    blocks = triton.cdiv(length, BLOCK)
    found_3NB = torch.empty(3, count, blocks, dtype=torch.float64, device=x_NK.device)
    _distances[(blocks, count)](
        x_NK, y_NK, found_3NB, x_NK.stride(0), y_NK.stride(0), length, BLOCK=BLOCK, num_warps=8
    )
    size_N, off_N = found_3NB[:2].sum(dim=2).sqrt_()
    return Distances(size_N, off_N, found_3NB[2].amax(dim=1))


def largest(
    x_NK: torch.Tensor, y_NK: torch.Tensor, absolute_N: torch.Tensor, relative_N: torch.Tensor
) -> torch.Tensor:
    """Compute `deviations.largest` on a GPU."""
    count, length = x_NK.shape
    blocks = triton.cdiv(length, BLOCK)
    largest_NB = torch.empty(count, blocks, dtype=torch.float64, device=x_NK.device)
    _largest[(blocks, count)](
        x_NK,
        y_NK,
        absolute_N,
        relative_N,
        largest_NB,
        x_NK.stride(0),
        y_NK.stride(0),
        length,
        LEAST=LEAST_BOUND,
        BLOCK=BLOCK,
        num_warps=8,
    )
    return largest_NB.amax(dim=1)


@triton.jit
def _exact(value):
    if value.dtype == tl.float64:
        return value
    return value.to(tl.float32).to(tl.float64)


@triton.jit
def _distances(x_ptr, y_ptr, found_ptr, x_stride, y_stride, length, BLOCK: tl.constexpr):
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    blocks, rows = tl.num_programs(0), tl.num_programs(1)
    place = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < length
    x = _exact(tl.load(x_ptr + row * x_stride + place, mask=inside, other=0.0))
    y = _exact(tl.load(y_ptr + row * y_stride + place, mask=inside, other=0.0))
    off = x - y
    # `tl.max` may pass over a NaN
    farthest = tl.max(tl.where(off == off, tl.abs(off), float("inf")), axis=0)
    tl.store(found_ptr + row * blocks + block, tl.sum(y * y, axis=0))
    tl.store(found_ptr + (rows + row) * blocks + block, tl.sum(off * off, axis=0))
    tl.store(found_ptr + (2 * rows + row) * blocks + block, farthest)


@triton.jit
def _largest(
    x_ptr,
    y_ptr,
    absolute_ptr,
    relative_ptr,
    largest_ptr,
    x_stride,
    y_stride,
    length,
    LEAST: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = block.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < length
    x = _exact(tl.load(x_ptr + row * x_stride + place, mask=inside, other=0.0))
    y = _exact(tl.load(y_ptr + row * y_stride + place, mask=inside, other=0.0))
    bound = tl.load(absolute_ptr + row) + tl.load(relative_ptr + row) * tl.abs(y)
    ratio = tl.abs(x - y) / tl.maximum(bound, LEAST)
    # `tl.max` may pass over a NaN
    ratio = tl.where(ratio == ratio, ratio, float("inf"))
    ratio = tl.where(inside, ratio, 0.0)
    tl.store(largest_ptr + row * tl.num_programs(0) + block, tl.max(ratio, axis=0))
