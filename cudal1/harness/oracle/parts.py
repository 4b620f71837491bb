"""Yield tensors in parts: a computation by element then needs no copy of all elements.

On a CPU the intermediate tensors of a part stay in its cache. An intermediate tensor as large as an
output of 100 MB takes ten times as long, most of it for memory that the kernel has to clear. On a
GPU parts only bound the memory: KernelBench has outputs of 6 GiB, and float64 copies would double
that.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

CPU_ELEMENTS, GPU_ELEMENTS = 1 << 17, 1 << 24
"""Elements of one part: one megabyte of float64 on a CPU, 128 on a GPU."""


def in_parts(*tensors_NK: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the same columns of tensors of one shape, (rows, columns), as views; none if empty."""
    rows, columns = tensors_NK[0].shape
    most = CPU_ELEMENTS if tensors_NK[0].device.type == "cpu" else GPU_ELEMENTS
    step = max(1, most // max(1, rows))
    for start in range(0, columns, step):
        yield tuple(tensor[:, start : start + step] for tensor in tensors_NK)


def flat_parts(*tensors: torch.Tensor) -> Iterator[tuple[torch.Tensor, ...]]:
    """Yield the same elements of tensors of one shape, whatever the shape, as 1-d tensors."""
    for parts in in_parts(*(tensor.reshape(1, -1) for tensor in tensors)):
        yield tuple(part[0] for part in parts)
