"""Measure how far outputs are from answers, row by row: norms, and largest deviations.

On a GPU each function is one pass over the data in float64, by a Triton kernel. As PyTorch
operators they would be a dozen passes, and every output of every timed burst is compared. On a CPU
the work is done part by part. All functions fail closed: a NaN makes a norm NaN and a largest
deviation infinite or NaN, which no bound admits.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from cudal1.harness.oracle.parts import in_parts

if TYPE_CHECKING:
    import torch

LEAST_BOUND = 1e-37
"""Least bound: where answer and bound are 0, the deviation must be 0, too."""


class Distances(NamedTuple):
    """Distances of N outputs from N answers, in float64."""

    size_N: torch.Tensor
    """Euclidean norm of each answer."""
    off_N: torch.Tensor
    """Euclidean norm of each difference."""
    farthest_N: torch.Tensor
    """Largest absolute element of each difference."""


def distances(x_NK: torch.Tensor, y_NK: torch.Tensor) -> Distances:
    """Return the distances of rows of x from rows of y.

    Rows may lie apart, and so may their elements. A row must have at least one element.
    """
    import torch

    kernels = _kernels(x_NK.device.type)
    if kernels is not None:
        return kernels.distances(packed(x_NK), packed(y_NK))
    work = torch.promote_types(torch.promote_types(x_NK.dtype, y_NK.dtype), torch.float32)
    found: list[tuple[torch.Tensor, ...]] = []
    for x, y in in_parts(x_NK, y_NK):
        y = y.to(work)
        off = x.to(work) - y
        sizes = y.norm(dim=1).double(), off.norm(dim=1).double()
        found.append((*sizes, off.abs_().amax(dim=1).double()))  # a NaN makes the largest NaN
    if len(found) == 1:
        return Distances(*found[0])
    size_PN, off_PN, farthest_PN = (torch.stack(of_parts) for of_parts in zip(*found, strict=True))
    return Distances(size_PN.norm(dim=0), off_PN.norm(dim=0), farthest_PN.amax(dim=0))


def largest(
    x_NK: torch.Tensor, y_NK: torch.Tensor, *, absolute_N: torch.Tensor, relative_N: torch.Tensor
) -> torch.Tensor:
    """Return the largest `|x - y| / (absolute + relative |y|)` of each row, in float64."""
    import torch

    kernels = _kernels(x_NK.device.type)
    if kernels is not None:
        return kernels.largest(packed(x_NK), packed(y_NK), absolute_N, relative_N)
    work = torch.promote_types(torch.promote_types(x_NK.dtype, y_NK.dtype), torch.float32)
    absolute_N1, relative_N1 = absolute_N.to(work)[:, None], relative_N.to(work)[:, None]
    found: list[torch.Tensor] = []
    for x, y in in_parts(x_NK, y_NK):
        y = y.to(work)
        bound = y.abs().mul_(relative_N1).add_(absolute_N1).clamp_min_(LEAST_BOUND)
        found.append((x.to(work) - y).abs_().div_(bound).amax(dim=1))  # a NaN makes it NaN
    return torch.stack(found).amax(dim=0).double()


def packed(rows_NK: torch.Tensor) -> torch.Tensor:
    """Return rows with elements that lie side by side, as kernels take them; rows may lie apart.

    A tensor that was expanded has one element in memory for many.
    """
    return rows_NK if rows_NK.shape[1] == 1 or rows_NK.stride(1) == 1 else rows_NK.contiguous()


@cache
def _kernels(device: str) -> Any:
    """Return the fused kernels on a GPU where Triton is installed, else None.

    PyTorch's CUDA builds bring Triton along.
    """
    if device != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module("cudal1.harness.oracle.deviation_kernels")
