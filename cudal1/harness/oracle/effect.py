"""Measure how far a reference's outputs move with its inputs.

Where they hardly move, a candidate may leave out work and be correct. METR and robust-kbench
removed problems for that reason. Here such a reference is weak: candidates are checked, and no gain
of theirs counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1.harness.oracle.deviations import distances
from cudal1.harness.oracle.parts import flat_parts

if TYPE_CHECKING:
    import torch

    Tensors = list[torch.Tensor]

BEYOND = 1e30
"""Stands for a distance that cannot be computed; JSON and records hold no infinity."""
SAME = 2e-3
"""Relative L2 distance up to which outputs count as equal where no class of precision is asked."""


@dataclass(frozen=True)
class Effect:
    """The relative L2 distances by which outputs move."""

    of_all: float
    """Largest distance when all inputs are redrawn."""
    least: float
    """Smallest distance when one input or all of them are redrawn."""
    least_place: int | None
    """Input with the smallest effect; None where that is all of them."""
    is_flat: bool
    """True if no output varies from element to element."""

    def weakness(self, limit: float) -> str | None:
        """Return why the reference is weak if distances up to `limit` count as none."""
        if self.of_all <= limit:
            said = "is constant" if self.is_flat else "does not depend on the inputs"
            moved = self.of_all
        elif self.least <= limit:
            said, moved = f"does not depend on input {self.least_place}", self.least
        else:
            return None
        return f"the output {said}: it moves by {moved:.1g}, at most {limit:.1g}"


def effect(
    first: Tensors,
    outputs: Tensors,
    others: Sequence[tuple[Tensors, Tensors]],
    call: Callable[[Tensors], Tensors | None],
) -> Effect:
    """Return how far outputs move when inputs are redrawn, all of them and one at a time.

    Args:
        first: the inputs of one draw.
        outputs: for `first`.
        others: the inputs of further draws, and the outputs for them.
        call: returns the outputs for inputs; None: the reference cannot do them.
    """
    moved = max(distance(outputs, answers) for _, answers in others)
    least, least_place = moved, None
    for place, (mine, other) in enumerate(zip(first, others[0][0], strict=True)):
        if mine.equal(other):  # a fixed input, such as a mask
            other = mine * 1.5 + 0.25 if mine.is_floating_point() else None
        if other is None or len(first) == 1 or other.shape != mine.shape:
            continue
        changed = call([*first[:place], other, *first[place + 1 :]])
        if changed is not None and (alone := distance(outputs, changed)) < least:
            least, least_place = alone, place
    return Effect(moved, least, least_place, is_flat=all(_is_flat(each) for each in outputs))


def distance(left: Tensors, right: Tensors) -> float:
    """Return the largest relative L2 distance; `BEYOND` between shapes or with NaN."""
    if [t.shape for t in left] != [t.shape for t in right]:
        return BEYOND
    return max((_apart(a, b) for a, b in zip(left, right, strict=True)), default=0.0)


def _is_flat(tensor: torch.Tensor) -> bool:
    level = tensor.double().mean() if tensor.is_floating_point() else tensor.flatten()[0]
    return distance([tensor], [level.to(tensor.dtype).expand_as(tensor)]) <= SAME


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the relative L2 distance of a tensor from another of its shape."""
    size = off = 0.0
    if one.is_floating_point() and other.is_floating_point() and one.numel():
        found = distances(other.reshape(1, -1), one.reshape(1, -1))
        size, off = float(found.size_N), float(found.off_N)
    if not 0 < size < math.inf:  # no such numbers, or so large that their squares are not finite
        size = off = 0.0
        for parts in flat_parts(one, other):
            x, y = (part.double() for part in parts)
            size = math.hypot(size, float(x.norm()))
            off = math.hypot(off, float((y - x).norm()))
    ratio = off / size if size > 0 else (0.0 if off == 0 else BEYOND)
    return ratio if math.isfinite(ratio) else BEYOND
