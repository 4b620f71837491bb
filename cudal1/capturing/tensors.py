"""Describe a tensor by an expression that draws tensors of its kind; its values are not kept.

The expression has the shape, the dtype and the layout. Values are drawn from what was seen:
integers within the seen bounds, booleans with the seen share, one of a few seen values, otherwise a
normal distribution with the seen mean and deviation. Structure that modules depend on is kept:
constants, counts along the last dimension, permutations, offsets in order, triangular masks, rows
that sum to one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudal1.capturing.refusal import CaptureError

if TYPE_CHECKING:
    import torch

MAX_KEPT = 1024
"""Elements of the largest tensor with values that are kept on request."""
MAX_VALUES = 8
"""Distinct values that count as a small set."""
MIN_SORTED = 4
"""Elements that a vector in order has at least; shorter ones are in order by chance."""
DTYPES = (
    "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()  # as in the wire
)
FLAT_TOLERANCE = 1e-3
"""Distance of a row's sum from one, for rows of probabilities."""


@dataclass(frozen=True)
class Drawn:
    """Tensors of one kind: those of a program's input in one or several calls."""

    shape: tuple[int, ...]
    dtype: str
    size: tuple[int, ...]
    """Shape in memory: dimensions by falling stride, repeated ones with one element."""
    order: tuple[int, ...]
    """The permutation that makes the shape out of `size`."""
    values: str
    """An expression with `{size}`; empty where it depends on the bounds below."""
    low: float = 0.0
    high: float = 0.0
    """Bounds of integers."""

    @property
    def words(self) -> str:
        """The tensor in words, such as `float32[8, 64]`."""
        return f"{self.dtype}{list(self.shape)}"

    def merged(self, other: Drawn) -> Drawn:
        """Return the kind that holds tensors of both."""
        if self.values or other.values:
            return self if self.values == other.values else self._loosest(other)
        return replace(self, low=min(self.low, other.low), high=max(self.high, other.high))

    def _loosest(self, other: Drawn) -> Drawn:
        """Return the kind with fewer promises; of two equal ones the first."""
        return other if self.values and not other.values else self

    @property
    def expression(self) -> str:
        """The Python expression that draws such a tensor, with `torch` alone."""
        values = self.values
        if not values:
            values = (
                f"torch.randint({int(self.low)}, {int(self.high) + 1}, {{size}}, "
                f"dtype=torch.{self.dtype})"
            )
        drawn = values.replace("{size}", repr(self.size))
        moved = tuple(self.size[place] for place in self.order)
        if self.order != tuple(range(len(self.order))):
            drawn += f".permute{self.order}"
        if moved != self.shape:
            drawn += f".expand{self.shape}" if len(self.shape) != 1 else f".expand({self.shape[0]})"
        return drawn


def described(tensor: torch.Tensor, name: str, *, keeps_data: bool) -> Drawn:
    """Return the kind of a tensor.

    Args:
        tensor: an input of a call.
        name: its name in errors.
        keeps_data: whether the values of a small tensor are written down.

    Raises:
        CaptureError: the harness has no such tensors, or no generator explains the values.
    """
    import torch

    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise CaptureError(
            f"{name} is a tensor of {dtype}, which the harness cannot pass; convert it before the "
            "call"
        )
    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_meta:
        raise CaptureError(f"{name} is no dense tensor; pass a dense one")
    if tensor.numel() == 0:
        raise CaptureError(f"{name} has no elements (shape {tuple(tensor.shape)}); pass some")
    plain = tensor.detach().to("cpu")
    shape, size, order = tuple(plain.shape), *_layout(plain)
    base = plain.permute(_inverse(order)) if order else plain
    base = base[tuple(slice(0, n) for n in size)] if size else base
    if keeps_data and base.numel() <= MAX_KEPT:
        literal = _literal(base.tolist())
        return Drawn(shape, dtype, size, order, f"torch.tensor({literal}, dtype=torch.{dtype})")
    if dtype == "bool":
        return Drawn(shape, dtype, size, order, _booleans(base))
    if "float" in dtype:
        return Drawn(shape, dtype, size, order, _floats(base, dtype, name))
    return _integers(Drawn(shape, dtype, size, order, ""), base)


def _layout(tensor: torch.Tensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shape in memory, and the permutation from it; plain where neither explains it."""
    shape, strides = tuple(tensor.shape), tensor.stride()
    plain = shape, tuple(range(len(shape)))
    places = sorted(
        range(len(shape)), key=lambda place: (-strides[place] if shape[place] > 1 else 0, place)
    )
    if any(shape[place] == 1 for place in places):  # their strides say nothing
        places = sorted(range(len(shape)), key=lambda p: (-_stride(shape, strides, p), p))
    size = tuple(1 if strides[p] == 0 and shape[p] > 1 else shape[p] for p in places)
    expected = 1
    for place, length in zip(reversed(places), reversed(size), strict=True):
        if length > 1 and strides[place] != expected:
            return plain
        expected *= length
    return size, _inverse(tuple(places))


def _stride(shape: Sequence[int], strides: Sequence[int], place: int) -> int:
    """Return a dimension's stride; of one with a single element that of a contiguous tensor."""
    if shape[place] > 1:
        return strides[place]
    after = [strides[p] * shape[p] for p in range(place + 1, len(shape)) if shape[p] > 1]
    return max(after, default=1)


def _inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(order.index(place) for place in range(len(order)))


def _literal(value: object) -> str:
    """Return nested lists of numbers as Python reads them."""
    if isinstance(value, list):
        return f"[{', '.join(_literal(each) for each in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def _booleans(values: torch.Tensor) -> str:
    share = values.double().mean().item()
    if share in (0.0, 1.0):
        return f"torch.full({{size}}, {bool(share)})"
    if cut := _triangle(values):
        return f"torch.ones({{size}}, dtype=torch.bool).{cut}"
    return f"(torch.rand({{size}}) < {share:.4g})"


def _triangle(values: torch.Tensor) -> str:
    """Return the call that makes the pattern of a square mask out of ones; else empty."""
    import torch

    if values.dim() < 2 or values.shape[-1] != values.shape[-2] or values.shape[-1] < 2:
        return ""
    ones = torch.ones_like(values)
    for cut in ("tril()", "triu(1)", "triu()", "tril(-1)"):
        name, _, diagonal = cut.rstrip(")").partition("(")
        if torch.equal(getattr(ones, name)(int(diagonal or 0)), values):
            return cut
    return ""


def _integers(drawn: Drawn, values: torch.Tensor) -> Drawn:
    import torch

    low, high = int(values.min()), int(values.max())
    length = values.shape[-1] if values.dim() else 1
    counted = torch.arange(length, dtype=torch.int64) + values.reshape(-1)[0].long()
    if length > 1 and bool((values.long() == counted).all()):
        start = int(counted[0])
        text = f"torch.arange({start}, {start + length}, dtype=torch.{drawn.dtype})"
        if values.dim() > 1:
            text += ".repeat" + repr((*values.shape[:-1], 1))
        return replace(drawn, values=text)
    if low == high:
        return replace(drawn, values=f"torch.full({{size}}, {low}, dtype=torch.{drawn.dtype})")
    if values.dim() == 1 and length >= MIN_SORTED:
        if torch.equal(values.long().sort().values, torch.arange(length)):
            return replace(drawn, values=f"torch.randperm({length}, dtype=torch.{drawn.dtype})")
        if bool((values[1:] >= values[:-1]).all()):
            ends = f"torch.tensor([{low}, {high}], dtype=torch.{drawn.dtype})"
            middle = f"torch.randint({low}, {high + 1}, ({length - 2},), dtype=torch.{drawn.dtype})"
            return replace(drawn, values=f"torch.cat([{ends}, {middle}]).sort().values")
    return replace(drawn, low=low, high=high)


def _floats(values: torch.Tensor, dtype: str, name: str) -> str:
    import torch

    of_type = f"dtype=torch.{dtype}"
    flat = values.reshape(-1).double()
    distinct = flat[: 1 << 16].unique()
    few = len(distinct) <= MAX_VALUES < flat.numel() or len(distinct) == 1
    few = few and bool(torch.isin(flat, distinct).all())
    if few and not bool(distinct.isnan().any()):
        found = distinct.tolist()
        if len(found) == 1:
            return f"torch.full({{size}}, {_literal(found[0])}, {of_type})"
        if len(found) == 2:
            for inside, outside in (found, found[::-1]):
                if cut := _triangle((values.double() == inside).to(torch.float32)):
                    kept = f"torch.ones({{size}}, dtype=torch.bool).{cut}"
                    full = f"torch.full({{size}}, {_literal(outside)}, {of_type})"
                    return f"{full}.masked_fill({kept}, {_literal(inside)})"
        places = f"torch.randint(0, {len(found)}, {{size}})"
        return f"torch.tensor({_literal(found)}, {of_type})[{places}]"
    exact = values.double()
    if not bool(exact.isfinite().all()):
        raise CaptureError(
            f"{name} holds NaN or infinities among many values, which no generator explains; pass "
            "it as a mask of booleans, or keep the values of small tensors with data=True (--data)"
        )
    rows = exact.sum(-1) if exact.dim() else exact
    low, high = exact.min().item(), exact.max().item()
    if exact.dim() and values.shape[-1] > 1 and low >= 0:
        slack = FLAT_TOLERANCE if dtype in ("float32", "float64") else 20 * FLAT_TOLERANCE
        if bool(((rows - 1).abs() <= slack).all()):
            return f"torch.randn({{size}}).softmax(-1).to(torch.{dtype})"
    if low >= 0:
        return f"(torch.rand({{size}}, {of_type}) * {high - low:.4g} + {low:.4g})"
    mean, deviation = exact.mean().item(), exact.std(correction=0).item()
    text = f"torch.randn({{size}}, {of_type})"
    if not 0.95 < deviation < 1.05:
        text = f"{text} * {deviation:.4g}"
    if abs(mean) > 0.05 * deviation:
        text = f"{text} + {mean:.4g}"
    return text if text.endswith(")") else f"({text})"
