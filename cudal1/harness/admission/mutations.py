"""Wrong outputs: each is one that a candidate that skips work could give.

Each is made by a small function that no candidate knows. Functions of `OUTPUTS` change outputs, one
tensor at a time. The others run the reference on something else. None means that the change does
not apply. Reasons are in docs/attacks.md, A11 to A14, A25, A36 to A43.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cudal1.harness.oracle.operators import Rounding, to_half
from cudal1.harness.oracle.oracle import Draw, Oracle, RefusalError, Tensors
from cudal1.harness.oracle.parts import flat_parts
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch

OFF_BY = {PrecisionClass.STRICT: 0.01, PrecisionClass.TF32: 0.01, PrecisionClass.HALF: 0.1}
"""Relative error of one element that is more than the class allows at ordinary sizes."""


@dataclass(frozen=True)
class Case:
    """One input of the check, and what a candidate could have kept of earlier ones."""

    draw: Draw
    outputs: Tensors
    """The reference's outputs, in its own dtype, as an honest candidate gives them."""
    previous: Tensors
    """The reference's outputs for the preceding input."""
    first: Case | None
    """The case of the check's first input; None in that case itself."""
    weight_seed: int | None
    """Seed of the weights in force; None: the first weights."""
    under: Callable[[int | None], AbstractContextManager[None]] = field(repr=False)
    """Makes the oracle compute with the weights of another seed; None: the first weights."""
    has_other_weights: bool
    """True if a candidate is given other weights than the first ones."""


# --- made of one output --------------------------------------------------------------------------


def zeros(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor:
    """Return zeros: nothing was written, or a constant within a loose tolerance."""
    return output * 0


def mean(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor | None:
    """Return the mean in every element."""
    import torch

    if bool((output == output.flatten()[0]).all()):
        return None  # a flat output is its mean
    level = output.double().mean()
    if not output.is_floating_point():
        level = level.round()
    return torch.full_like(output, level.item())


def stale(_: torch.Tensor, previous: torch.Tensor) -> torch.Tensor | None:
    """Return the answer to the preceding input."""
    return previous


def first_half(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor | None:
    """Return the first rows only, and zeros for the rest."""
    return _only_first_half(output, output * 0)


def first_half_stale(output: torch.Tensor, previous: torch.Tensor) -> torch.Tensor | None:
    """Return the first rows only, and the preceding answer's rows for the rest."""
    return _only_first_half(output, previous)


def shuffled(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor | None:
    """Return the rows moved by one place."""
    return output.roll(1, dims=0) if output.dim() and output.shape[0] > 1 else None


def negated(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor | None:
    """Return the output with the wrong sign."""
    if str(output.dtype) in ("torch.bool", "torch.uint8"):
        return None  # these types have no sign
    return -output


def one_nan(output: torch.Tensor, _: torch.Tensor) -> torch.Tensor | None:
    """Return the output with NaN in one element, which a careless comparison accepts."""
    return _with_last(output, float("nan")) if output.is_floating_point() else None


def one_off(
    output: torch.Tensor, _: torch.Tensor, *, share: float = OFF_BY[PrecisionClass.STRICT]
) -> torch.Tensor:
    """Return one element off by a share of its or the tensor's size; an integer, by one."""
    last = output.flatten()[-1]
    if not output.is_floating_point():
        return _with_last(output, not last if str(output.dtype) == "torch.bool" else last - 1)
    norm = math.sqrt(sum(float(part.double().square().sum()) for (part,) in flat_parts(output)))
    size = max(abs(float(last)), norm / math.sqrt(output.numel()))
    return _with_last(output, float(last) + share * size)


def _only_first_half(output: torch.Tensor, rest: torch.Tensor) -> torch.Tensor | None:
    """Keep the first half: of the rows where there are several, else of the elements."""
    rows = output if output.dim() and output.shape[0] > 1 else output.reshape(-1)
    kept = (rows.shape[0] + 1) // 2
    if kept == rows.shape[0] or rest.shape != output.shape:
        return None
    mixed = rest.reshape(rows.shape).clone()
    mixed[:kept] = rows[:kept]
    return mixed.reshape(output.shape)


def _with_last(output: torch.Tensor, value: torch.Tensor | float) -> torch.Tensor:
    changed = output.clone().contiguous()
    changed.view(-1)[-1].fill_(value)
    return changed


# --- made by running the reference ---------------------------------------------------------------


def run(
    oracle: Oracle, draw: Draw, mode: AbstractContextManager[object] | None = None
) -> Tensors | None:
    """Return the reference's own outputs; None where it refuses the input."""
    try:
        return [output.clone() for output in oracle.outputs(draw, mode)]
    except RefusalError:
        return None


def first_answer(_: Oracle, case: Case) -> Tensors | None:
    """Return the answer to the first input, for every input."""
    return case.first.outputs if case.first else None


def first_weights(oracle: Oracle, case: Case) -> Tensors | None:
    """Return the answer under the first weights, even after a change of weights."""
    return None if case.weight_seed is None else _under(oracle, case, None)


def other_weights(oracle: Oracle, case: Case) -> Tensors | None:
    """Return the answer under weights that are unrelated to those in force."""
    if not case.has_other_weights:
        return None
    return _under(oracle, case, 1 if case.weight_seed is None else case.weight_seed + 1)


def _under(oracle: Oracle, case: Case, seed: int | None) -> Tensors | None:
    with case.under(seed):
        return run(oracle, case.draw)


def ignores_input(place: int) -> Callable[[Oracle, Case], Tensors | None]:
    """Return a mutant that never reads one input, and uses its first value instead."""

    def ignoring(oracle: Oracle, case: Case) -> Tensors | None:
        import torch

        if case.first is None:
            return None
        inputs = list(case.draw.inputs)
        known = case.first.draw.inputs[place]
        if torch.equal(known, inputs[place]):  # a fixed input, such as a mask
            return None
        inputs[place] = known
        return run(oracle, Draw(inputs, case.draw.family))

    return ignoring


def passes_input(place: int) -> Callable[[Oracle, Case], Tensors | None]:
    """Return a mutant that returns one input as the output."""

    def passing(_: Oracle, case: Case) -> Tensors | None:
        given = case.draw.inputs[place]
        fits = [given.shape == o.shape and given.dtype == o.dtype for o in case.outputs]
        if not any(fits):
            return None
        pairs = zip(case.outputs, fits, strict=True)
        return [given if fitting else output for output, fitting in pairs]

    return passing


def no_small_parts(dim: int) -> Callable[[Oracle, Case], Tensors | None]:
    """Return a mutant that leaves the smallest quarter of the rows (or columns) at 0.

    It applies to the problem's own inputs alone. Where some rows are tiny beside others, their
    absence would not be noticed, and a candidate need not compute them.
    """

    def leaving_out(_: Oracle, case: Case) -> Tensors | None:
        import torch

        if not case.draw.is_own:
            return None
        changed = [output.clone() for output in case.outputs]
        for output in changed:
            if output.dim() > 1:
                parts = output.movedim(dim, 0)
                sizes = parts.flatten(1).double().norm(dim=1)
                parts[sizes.argsort()[: len(parts) // 4]] = 0
        pairs = zip(changed, case.outputs, strict=True)
        return None if all(torch.equal(mine, right) for mine, right in pairs) else changed

    return leaving_out


def rounded_to(dtype: torch.dtype) -> Callable[[Oracle, Case], Tensors | None]:
    """Return a mutant with operators that take and give a half type but compute in float32."""
    import torch

    bits = torch.finfo(dtype).eps

    def rounding(oracle: Oracle, case: Case) -> Tensors | None:
        exact = all(
            not o.is_floating_point() or bits <= torch.finfo(o.dtype).eps for o in case.outputs
        )
        return None if exact else run(oracle, case.draw, Rounding(to_half(dtype)))

    return rounding


OUTPUTS = {
    "zeros": zeros,
    "mean": mean,
    "stale": stale,
    "first_half": first_half,
    "first_half_stale": first_half_stale,
    "shuffled": shuffled,
    "negated": negated,
    "one_nan": one_nan,
    "one_off": one_off,
}
