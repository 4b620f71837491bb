"""Find out whether the check would notice that outputs are those for other inputs.

Where it would not, a candidate may leave out work and be correct. METR and robust-kbench removed
problems for that reason. Here such a reference is weak: candidates are checked, and no gain of
theirs counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1.harness.oracle.correctness import ReferenceError, compare
from cudal1.harness.oracle.deviations import distances
from cudal1.harness.oracle.parts import flat_parts
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch

    Tensors = list[torch.Tensor]

BEYOND = 1e30
"""Stands for a distance that cannot be computed; JSON and records hold no infinity."""
MARGIN = 4.0
"""Factor by which outputs must exceed a bound of the check to be noticed: the largest of some draws
is looked at, and a candidate may leave out a part of what moves them."""
FLAT = 2e-3
"""Relative L2 distance from its mean up to which an output is called constant."""


@dataclass(frozen=True)
class Effect:
    """The effect of a reference's inputs on its outputs."""

    least: float
    """Relative L2 distance by which outputs move when one input or all of them are drawn anew, the
    largest of some draws, for the input with the smallest."""
    weakness: str | None
    """Reason why the reference is weak; None: it is not."""


def effect(
    first: Tensors,
    outputs: Tensors,
    seeds: Sequence[int],
    draw: Callable[[int], Tensors],
    call: Callable[[Tensors], Tensors | None],
    notices: Callable[[Tensors, Tensors], bool],
) -> Effect:
    """Return the effect of all inputs, drawn anew, and of each one alone; fixed ones are left out.

    Args:
        first: the inputs of one draw.
        outputs: for `first`.
        seeds: those of further draws.
        draw: returns the inputs of a seed.
        call: returns the outputs for inputs; None: the reference cannot do them.
        notices: returns whether the check tells answers, its first argument, from outputs in their
            place. Draws end when it does.
    """
    least = BEYOND
    for place in (None, *(range(len(first)) if len(first) > 1 else ())):
        moved: float | None = None
        for seed in seeds:
            inputs = draw(seed)
            if place is not None:
                if first[place].equal(inputs[place]):
                    continue
                inputs = [*first[:place], inputs[place], *first[place + 1 :]]
            others = call(inputs)
            if others is None:
                continue
            moved = max(moved or 0.0, distance(outputs, others))
            if notices(outputs, others):
                break
        else:
            if moved is not None:
                return Effect(moved, _weakness(outputs, place, moved))
        least = least if moved is None else min(least, moved)
    return Effect(least, None)


def is_noticed(
    answers: Tensors, outputs: Tensors, error: ReferenceError, precision: PrecisionClass
) -> bool:
    """Return whether an output is clearly none of the answers in a class.

    `error` is the reference's own error in its answers, which widens the bounds.
    """
    return any(
        not compare(x, y, error).worst[precision] <= MARGIN
        for x, y in zip(outputs, answers, strict=True)
    )


def _weakness(outputs: Tensors, place: int | None, moved: float) -> str:
    said = "does not depend on the inputs" if place is None else f"does not depend on input {place}"
    if place is None and all(_is_flat(each) for each in outputs):
        said = "is constant"
    return f"the output {said}: it moves by {moved:.1g}, too little to be noticed"


def distance(left: Tensors, right: Tensors) -> float:
    """Return the largest relative L2 distance; `BEYOND` between shapes or with NaN."""
    if [t.shape for t in left] != [t.shape for t in right]:
        return BEYOND
    return max((_apart(a, b) for a, b in zip(left, right, strict=True)), default=0.0)


def _is_flat(tensor: torch.Tensor) -> bool:
    level = tensor.double().mean() if tensor.is_floating_point() else tensor.flatten()[0]
    return distance([tensor], [level.to(tensor.dtype).expand_as(tensor)]) <= FLAT


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
