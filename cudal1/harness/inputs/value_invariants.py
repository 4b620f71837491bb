"""Invariants of single values: a small set, whole numbers, bounds.

A bound is a promise only where the generator made it one. `torch.rand` draws from 0 to 1 because it
has to draw from somewhere. An author means "any numbers" by it, and a kernel that therefore leaves
out a ReLU is right by luck. So a bound counts where values crowd at it (they were clamped,
rectified, squared, made absolute) and are not spread evenly as `torch.rand` spreads them.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, Self

from cudal1.harness.inputs.invariants import FEW, SAMPLE, Invariant, Number, sample, shown

if TYPE_CHECKING:
    import torch

PER_VALUE = 8
"""Elements of all draws for each value of a set; fewer show no set."""
APART = 8.0
"""Smallest distance between two values of a set, in units in the last place. Nearer values may be
all that the type has there."""
CROWD, CROWD_COUNT = 0.005, 4
"""Share, and number, of the values that must lie at an intended bound: on it, or within `NEAR` of
it. It is half of the share that absolute values of normal numbers have there."""
NEAR = 0.02
"""Share of the median distance from a bound within which a value is near it."""
PLAIN_BOUNDS = (0.0, 1.0, -1.0)
"""Numbers that may bound values which lie near, but not on them."""
EVEN = 3.0
"""Kolmogorov's distance times the root of the count above which values are not evenly spread, at an
error of one in ten million."""
MIN_VALUES = 64
"""Values of a draw that are needed to tell a bound from luck."""
EXACT_BITS = 3
"""Bits of a type's precision that whole numbers must leave free: above, every number is whole."""


class Values(Invariant):
    """Every element is one of a few values: targets of -1 and 1, masks, one-hot rows."""

    kind: Literal["values"] = "values"
    values: tuple[Number, ...]
    """The values, ascending."""

    @classmethod
    def suspected(cls, first: torch.Tensor) -> Values | None:
        """Return the values of a first draw; None where they are too many."""
        values = _distinct(first, ())
        return None if values is None or _has_nan(values) else cls(values=values)

    def text(self) -> str:
        """Return the invariant in words."""
        return f"values in {{{', '.join(map(shown, self.values))}}}"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether all elements are of the set."""
        return not bool(_others(tensor, self.values).any())

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the nearest value of the set for each element."""
        import torch

        result = torch.full_like(changed, self.values[0])
        for low, high in pairwise(self.values):
            middle = low + (high - low) / 2 if math.isfinite(high - low) else low
            result = torch.where(changed > middle, high, result)
        return result

    def after(self, tensor: torch.Tensor, first: torch.Tensor) -> Self | None:
        """Return the set with the values of this draw."""
        values = _distinct(tensor, self.values)
        if values is None or _has_nan(values):
            return None
        return self if values == self.values else type(self)(values=values)

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether many elements share few values, which lie well apart."""
        finite = [value for value in self.values if math.isfinite(value)]
        gaps = [high - low for low, high in pairwise(finite)]
        if first.is_floating_point() and gaps:
            import torch

            size = max(abs(finite[0]), abs(finite[-1]))
            if min(gaps) < APART * torch.finfo(first.dtype).eps * size:
                return False
        return first.numel() * num_draws >= PER_VALUE * len(self.values)


class Whole(Invariant):
    """Every element is a whole number within the bounds that were seen."""

    kind: Literal["whole"] = "whole"
    low: int
    high: int

    @classmethod
    def suspected(cls, first: torch.Tensor) -> Whole | None:
        """Return the invariant where a first draw holds whole numbers that need not be whole."""
        if first.is_floating_point():
            import torch

            part = sample(first)
            exact = 2.0 ** (-EXACT_BITS) / torch.finfo(first.dtype).eps
            if not bool(((part == part.round()) & (part.abs() <= exact)).all()):
                return None
        low, high = first.aminmax()
        if not math.isfinite(float(high - low)):
            return None
        found = cls(low=int(low), high=int(high))
        return found if found.holds(first, first) else None

    def text(self) -> str:
        """Return the invariant in words."""
        return f"whole numbers, {self.low} to {self.high} seen"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether all elements are whole numbers within the bounds."""
        if tensor.is_floating_point() and not bool((tensor == tensor.round()).all()):
            return False
        low, high = tensor.aminmax()
        return float(low) >= self.low and float(high) <= self.high

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the nearest whole number within the bounds for each element."""
        return changed.round().clamp(self.low, self.high)

    def after(self, tensor: torch.Tensor, first: torch.Tensor) -> Self | None:
        """Return the invariant with the bounds of this draw, too."""
        seen = self.suspected(tensor)
        if seen is None:
            return None
        return self.model_copy(
            update={"low": min(self.low, seen.low), "high": max(self.high, seen.high)}
        )


class Bounds(Invariant):
    """No element is beyond an intended bound of the generator."""

    kind: Literal["bounds"] = "bounds"
    low: float | None
    high: float | None

    @classmethod
    def suspected(cls, first: torch.Tensor, same: torch.Tensor | None) -> Bounds | None:
        """Return the intended bounds of a first draw; None without any.

        Args:
            first: the draw.
            same: mask of elements known to be the same in every draw; None: none is.
        """
        part = (first if same is None else first[~same]).reshape(-1)
        if part.numel() < MIN_VALUES:
            return None
        low, high = map(float, part.aminmax())
        if not math.isfinite(high - low) or low == high:
            return None
        some = sample(part).double()
        between = some[(some != low) & (some != high)]  # beside such numbers, zeros may be a mask's
        if between.unique().numel() <= FEW or _is_even(between):
            return None
        found = cls(low=_bound(some, low), high=_negated(_bound(-some, -high)))
        return None if found.low is None and found.high is None else found

    def text(self) -> str:
        """Return the invariant in words."""
        if self.low is None:
            assert self.high is not None
            return f"at most {shown(self.high)}"
        if self.high is None:
            return f"at least {shown(self.low)}"
        return f"from {shown(self.low)} to {shown(self.high)}"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether no element is beyond the bounds."""
        low, high = map(float, tensor.aminmax())
        return (self.low is None or low >= self.low) and (self.high is None or high <= self.high)

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the tensor with elements beyond the bounds moved onto them.

        Beyond a single bound, or below 0, they are mirrored instead, so that their size stays.
        """
        import torch

        if self.low is None:
            assert self.high is not None
            return torch.min(changed, 2 * self.high - changed)
        if self.high is None or self.low == 0:
            changed = torch.max(changed, 2 * self.low - changed)
        return changed.clamp(self.low, self.high)

    def after(self, tensor: torch.Tensor, first: torch.Tensor) -> Self | None:
        """Return the bounds that this draw keeps, too."""
        low, high = map(float, tensor.aminmax())
        kept_low = self.low if self.low is not None and low >= self.low else None
        kept_high = self.high if self.high is not None and high <= self.high else None
        if kept_low is None and kept_high is None:
            return None
        return self.model_copy(update={"low": kept_low, "high": kept_high})


def _bound(some: torch.Tensor, low: float) -> float | None:
    """Return the intended lower bound of values with the minimum `low`; None without one."""
    if _is_crowd(some == low):
        return low
    for bound in PLAIN_BOUNDS:
        distances = some - bound
        if low >= bound and _is_crowd(distances <= NEAR * distances.median()):
            return bound
    return None


def _is_crowd(is_there: torch.Tensor) -> bool:
    return int(is_there.sum()) >= max(CROWD_COUNT, CROWD * is_there.numel())


def _negated(number: float | None) -> float | None:
    return None if number is None else 0.0 - number


def _is_even(some: torch.Tensor) -> bool:
    """Return whether values are spread evenly, as `torch.rand` spreads them."""
    import torch

    ordered = some.sort().values
    count = ordered.numel()
    ordered = (ordered - ordered[0]) / (ordered[-1] - ordered[0])
    steps = torch.linspace(0, 1, count, dtype=ordered.dtype, device=ordered.device)
    step = math.sqrt(count) / ordered.unique().numel()  # for a type that has few numbers there
    return float((ordered - steps).abs().max()) * math.sqrt(count) <= EVEN + step


def _distinct(tensor: torch.Tensor, known: tuple[float, ...]) -> tuple[float, ...] | None:
    """Return the known values and the tensor's own, ascending; None where they are not few."""
    values = set(known or map(float, sample(tensor).unique().tolist()))
    if len(values) > FEW:
        return None
    while bool((others := _others(tensor, values)).any()):
        values |= set(map(float, tensor[others][:SAMPLE].unique().tolist()))
        if len(values) > FEW or _has_nan(values):
            return None
    return tuple(sorted(values))


def _others(tensor: torch.Tensor, values: set[float] | tuple[float, ...]) -> torch.Tensor:
    import torch

    others = torch.ones_like(tensor, dtype=torch.bool)
    for value in values:
        others &= tensor != value
    return others


def _has_nan(values: set[float] | tuple[float, ...]) -> bool:
    return any(math.isnan(value) for value in values)
