"""Have a reference answer draws: its own answers, exact ones, and the errors allowed between them.

This module runs the *reference* alone, never a candidate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from cudal1.harness.inputs.draws import Change, Draw, Draws, Tensors
from cudal1.harness.inputs.families import nudged
from cudal1.harness.oracle.calls import Calls
from cudal1.harness.oracle.correctness import ReferenceError, reference_error
from cudal1.harness.oracle.models import Models
from cudal1.harness.reference.reference_code import RefusalError
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch

TOO_HARD = 0.02
"""Relative L2 error of the reference above which a single draw of another family says nothing. On
the problem's own inputs every output is compared; there this is the largest error that widens a
bound."""
ROUNDED_SHARE = 0.5
"""Share that counts of the error of a reference with operators rounded as a class allows. Bounds
widen to four times a reference's error, so an honest candidate may be twice as far off as that
reference."""
NUM_NUDGES = 4
NUM_CHANCES = 8
"""Number of programs that round by chance. If one element decides, an honest error is above four
times the largest of eight others once in ten thousand times, and above four times one error once in
six times."""


def tells(draw: Draw, error: ReferenceError) -> bool:
    """Return whether an output for `draw` says anything, given the reference's error there."""
    return draw.is_own or error.relative_l2 <= TOO_HARD


class Answering:
    """Answers draws with a reference.

    Args:
        models: compute the answers.
        draws: the inputs; replaced once more is known of them.
        calls: of the models.
        precision: the class that candidates have to meet.
    """

    def __init__(
        self, models: Models, draws: Draws, calls: Calls, precision: PrecisionClass
    ) -> None:
        from cudal1.harness.oracle.operators import narrowest, rounding

        self.draws = draws
        self.calls = calls
        self.mutates_inputs = True
        """True if a call writes to its inputs; each call then has copies."""
        self._models = models
        self._precision = precision
        self._rounding = rounding(precision)
        self._narrowest = narrowest(precision)
        self._dtypes: set[torch.dtype] | None = None
        """Types of numbers, except integers, in which the reference computes; None: unknown."""

    def plain(self, draw: Draw, mode: AbstractContextManager[object] | None = None) -> Tensors:
        """Return the reference's own outputs, under a mode that interferes with its operators.

        Raises:
            RefusalError: the reference cannot do the input, or gives other kinds of outputs than
                usual.
        """
        change = copied if self.mutates_inputs else None
        return self.calls.plain(self._models.model, self.draws.given(draw, change), mode)

    def exact(self, draw: Draw) -> Tensors:
        """Return the outputs in float64, or the reference's own where it cannot be run in float64.

        Raises:
            RefusalError: the reference cannot do the input, or gives other kinds of outputs than
                usual.
        """
        if self._models.exact is None:
            return self.plain(draw)
        return self._exact(draw)

    def errors(self, draw: Draw, plains: Tensors, exacts: Tensors) -> list[ReferenceError]:
        """Return the reference's error in each output, widened by rounding that the class has."""
        return self.with_rounding(draw, errors_of(plains, exacts), exacts)

    def with_rounding(
        self, draw: Draw, errors: list[ReferenceError], exacts: Tensors
    ) -> list[ReferenceError]:
        """Return the errors, widened to those of a reference that rounds as the class allows."""
        if self._rounding is None:
            return errors
        from cudal1.harness.oracle.operators import Rounding

        try:
            rounded = self.plain(draw, Rounding(self._rounding))
        except RefusalError:  # its operators cannot be interfered with
            return errors
        return [
            error.larger(reference_error(x, y).times(ROUNDED_SHARE))
            for error, x, y in zip(errors, rounded, exacts, strict=True)
        ]

    def is_in_range(self, draw: Draw, plain: Tensors) -> bool:
        """Return whether operators of the narrowest type in the class reach no infinity.

        float16 ends at 65,504. Overflow on the problem's own inputs is the problem's business.
        Inputs of another family may be a hundred times as large; a candidate in float16 owes no
        larger range there. `plain` are the reference's own outputs.
        """
        if self._narrowest is None or draw.is_own:
            return True
        from cudal1.harness.oracle.operators import Rounding

        try:
            narrow = self.plain(draw, Rounding(self._narrowest))
        except RefusalError:  # its operators cannot be interfered with
            return True
        return all(finite_alike(x, y) for x, y in zip(narrow, plain, strict=True))

    def nudged(self, draw: Draw) -> list[Tensors]:
        """Return exact answers to inputs that are off by as much as an honest candidate's rounding.

        Numbers that lie as near to each other as a rounding error may decide an integer: two
        largest values, a half to be rounded. Where such a nudge changes the integer, an honest
        candidate may give the other integer, too.
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

    def by_chance(self, draw: Draw, exacts: Tensors, seeds: Sequence[int]) -> list[ReferenceError]:
        """Return the largest error in each output of programs that round by chance, one a seed.

        The reference's own error is one such error. Where few elements decide the error (a sum
        that cancels before a steep function), one may be small by luck. Without memory for more
        programs the errors of the first ones count.

        A reference that computes in float64 itself, if only in part, does so for a reason: no
        program that rounds as its class allows explains an error there. Where a class rounds more
        coarsely than float32, a reference in float32 shows it as well as one in float64, in a
        fraction of the time.
        """
        worst = [ReferenceError(0.0, 0.0)] * len(exacts)
        for errors in self._chances(draw, exacts, seeds):
            worst = [
                one.larger(error) if error.is_finite else one
                for one, error in zip(worst, errors, strict=True)
            ]
        return worst

    def is_hard(self, draw: Draw, exacts: Tensors, seeds: Sequence[int]) -> bool:
        """Return whether a program that rounds by chance is off by more than `TOO_HARD`.

        The error is infinite where the answer is 0 everywhere and the program's is not.
        """
        return any(
            error.relative_l2 > TOO_HARD
            for errors in self._chances(draw, exacts, seeds)
            for error in errors
        )

    def _chances(
        self, draw: Draw, exacts: Tensors, seeds: Sequence[int]
    ) -> Iterator[list[ReferenceError]]:
        """Yield the error in each output of programs that round by chance, as `by_chance` says."""
        import torch

        from cudal1.harness.oracle.operators import ADDING, HALF_UNIT, Shaking

        assert self._models.exact is not None
        dtypes = self._dtypes_of(draw)
        if dtypes is None or torch.float64 in dtypes:
            return
        is_single = self._rounding is not None and dtypes == {torch.float32}
        share = 1.0 if self._rounding is None else ROUNDED_SHARE
        for seed in seeds:
            mode = Shaking(
                self._rounding,
                HALF_UNIT[self._precision],
                adding=ADDING[self._precision],
                wide=torch.float32 if is_single else torch.float64,
                seed=seed,
                keeps_results=self._rounding is not None and seed % 2 == 1,
            )
            try:
                outputs = self._shaken(draw, mode) if is_single else self._exact(draw, mode)
                errors = errors_of(outputs, exacts)
            except RefusalError:
                continue
            except torch.OutOfMemoryError:
                break
            yield [error.times(share) for error in errors]

    def _shaken(self, draw: Draw, mode: AbstractContextManager[object]) -> Tensors:
        """Return the reference's own outputs under a mode; attention is in parts, as float64's."""
        from torch.nn.attention import SDPBackend, sdpa_kernel

        with sdpa_kernel(SDPBackend.MATH):
            return self.plain(draw, mode)

    def _exact(self, draw: Draw, mode: AbstractContextManager[object] | None = None) -> Tensors:
        assert self._models.exact is not None
        given = self.draws.given(draw, self._copying(_as_double))
        return self.calls.exact(self._models.exact, given, mode)

    def _dtypes_of(self, draw: Draw) -> set[torch.dtype] | None:
        """Return the types in which the reference computes; None where it hides them."""
        from cudal1.harness.oracle.operators import Watching

        if self._dtypes is None:
            watching = Watching()
            try:
                self.plain(draw, watching)
            except RefusalError:
                return None
            self._dtypes = watching.dtypes
        return self._dtypes

    def _copying(self, change: Change) -> Change:
        """Return the change, done to copies where the reference writes to its inputs."""
        return (lambda tensor: change(tensor.clone())) if self.mutates_inputs else change


def errors_of(plains: Tensors, exacts: Tensors) -> list[ReferenceError]:
    """Return the error of each of a reference's own outputs against the one in float64."""
    return [reference_error(x, y) for x, y in zip(plains, exacts, strict=True)]


def finite_alike(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether the same elements of two tensors are finite.

    Mostly all are, which takes one look at each element and no memory.
    """
    if _is_all_finite(x) and _is_all_finite(y):
        return True
    return x.isfinite().equal(y.isfinite())


def _is_all_finite(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel():
        return not tensor.is_complex()
    return all(bool(each.isfinite()) for each in tensor.aminmax())  # NaN if any element is


def copied(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy: a change of inputs that leaves their values."""
    return tensor.clone()


def _as_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
