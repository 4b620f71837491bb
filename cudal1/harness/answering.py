"""Answers of a reference to draws: its own and exact ones, and how far apart they may be.

Runs the *reference* alone, never a candidate.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from cudal1.harness.calls import Calls
from cudal1.harness.correctness import ReferenceError, reference_error
from cudal1.harness.draws import Change, Draw, Draws, Tensors
from cudal1.harness.families import nudged
from cudal1.harness.models import Models
from cudal1.harness.reference_code import RefusalError
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch

TOO_HARD = 0.02
"""A single draw of another family on which the reference is farther off says nothing either. On the
problem's own inputs nobody is let off: there it is the most that widens a bound."""
ROUNDED_SHARE = 0.5
"""What counts of the error of a reference whose operators round as a class allows: bounds widen to
four times a reference's error, so an honest candidate may be twice as far off as that one."""
NUM_NUDGES = 4


def tells(draw: Draw, error: ReferenceError) -> bool:
    """Whether an output for `draw`, where the reference is off by `error`, says anything."""
    return draw.is_own or error.relative_l2 <= TOO_HARD


class Answering:
    """Has a reference answer draws.

    Args:
        models: compute the answers.
        draws: the inputs; replaced once more is known of them.
        calls: of the models.
        precision: the class that candidates have to meet.
    """

    def __init__(
        self, models: Models, draws: Draws, calls: Calls, precision: PrecisionClass
    ) -> None:
        from cudal1.harness.operators import narrowest, rounding

        self.draws = draws
        self.calls = calls
        self.mutates_inputs = True
        """Whether a call writes to its inputs; each then has copies."""
        self._models = models
        self._rounding = rounding(precision)
        self._narrowest = narrowest(precision)

    def plain(self, draw: Draw, mode: AbstractContextManager[object] | None = None) -> Tensors:
        """Return the reference's own outputs, under a mode that interferes with its operators.

        Raises:
            RefusalError: it cannot do the input, or gives other kinds of outputs than usual.
        """
        change = copied if self.mutates_inputs else None
        return self.calls.plain(self._models.model, self.draws.given(draw, change), mode)

    def exact(self, draw: Draw) -> Tensors:
        """Return the outputs in float64, or the reference's own where it cannot be run in it.

        Raises:
            RefusalError: it cannot do the input, or gives other kinds of outputs than usual.
        """
        if self._models.exact is None:
            return self.plain(draw)
        given = self.draws.given(draw, self._copying(_as_double))
        return self.calls.exact(self._models.exact, given)

    def errors(self, draw: Draw, plains: Tensors, exacts: Tensors) -> list[ReferenceError]:
        """How far the reference is off in each output, and one that rounds as the class allows."""
        errors = [reference_error(x, y) for x, y in zip(plains, exacts, strict=True)]
        if self._rounding is None:
            return errors
        from cudal1.harness.operators import Rounding

        try:
            rounded = self.plain(draw, Rounding(self._rounding))
        except RefusalError:  # its operators cannot be interfered with
            return errors
        return [
            error.larger(reference_error(x, y).times(ROUNDED_SHARE))
            for error, x, y in zip(errors, rounded, exacts, strict=True)
        ]

    def is_in_range(self, draw: Draw, plain: Tensors) -> bool:
        """Whether operators of the narrowest type that the class allows reach no infinity.

        float16 ends at 65,504. The problem's own inputs are its business; on those of another
        family, which may be a hundred times as large, a candidate in float16 owes no more. `plain`
        are the reference's own outputs.
        """
        if self._narrowest is None or draw.is_own:
            return True
        from cudal1.harness.operators import Rounding

        try:
            narrow = self.plain(draw, Rounding(self._narrowest))
        except RefusalError:  # its operators cannot be interfered with
            return True
        pairs = zip(narrow, plain, strict=True)
        return all(x.isfinite().equal(y.isfinite()) for x, y in pairs)

    def nudged(self, draw: Draw) -> list[Tensors]:
        """Exact answers to inputs that are off by what an honest candidate's rounding amounts to.

        An integer is decided by numbers that may lie as near to each other as to a rounding error:
        two largest values, a half to be rounded. What such a nudge decides otherwise, others may.
        """
        if not any(t.is_floating_point() for t in draw.inputs):
            return []
        assert self._models.exact is not None
        answers: list[Tensors] = []
        for _ in range(NUM_NUDGES):
            inputs = self.draws.given(draw, self._copying(nudged))
            with suppress(RefusalError):
                answers.append(self.calls.exact(self._models.exact, inputs))
        return answers

    def _copying(self, change: Change) -> Change:
        """Return the change, done to copies where the reference writes to its inputs."""
        return (lambda tensor: change(tensor.clone())) if self.mutates_inputs else change


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy: a change of inputs that leaves their values."""
    return tensor.clone()


def _as_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
