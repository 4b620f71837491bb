"""The judge's own copy of a problem: it draws inputs and computes answers.

Runs the *reference*, which admission has tried in a process of its own, and never a candidate.
Long because what is learned of a reference once and what is asked of it later are the same calls.
"""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cudal1.harness.arrangement import Arrangement
from cudal1.harness.calls import Calls
from cudal1.harness.correctness import ReferenceError, reference_error
from cudal1.harness.domain import Domain
from cudal1.harness.draws import Change, Draw, Draws, Tensors
from cudal1.harness.families import FAMILIES, OWN, changed_weight, nudged
from cudal1.harness.reference import Reference, load_reference
from cudal1.harness.reference_code import ReferenceCode, RefusalError
from cudal1.harness.roofline import NO_WORK, Work, least_work
from cudal1.harness.seeding import kept_others, seed_others, seed_torch
from cudal1.harness.weights import Weights, is_lazy, load_by_name
from cudal1.harness.wire import TensorSpec, View, tensor_places
from cudal1.problem import Problem
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch

__all__ = ["Draw", "Key", "Oracle", "RefusalError", "Tensors", "tells"]

Key = list[tuple["torch.Tensor", ReferenceError]]
"""Each output of a call as it should be, with how far off the reference is."""

MAX_FAMILY_ERROR = 1e-3
"""A family of inputs on which the reference itself is farther off than this says nothing; in the
looser classes, `TOO_HARD`."""
TOO_HARD = 0.02
"""A single draw of another family on which the reference is farther off says nothing either. On the
problem's own inputs nobody is let off: there it is the most that widens a bound."""
ROUNDED_SHARE = 0.5
"""What counts of the error of a reference whose operators round as a class allows: bounds widen to
four times a reference's error, so an honest candidate may be twice as far off as that one."""
EXAMINED_SEEDS = (11, 12, 13)
NUM_NUDGES = 4


@dataclass(frozen=True)
class _Traits:
    """What is learned of a reference once: it takes dozens of calls in float64."""

    arrangement: Arrangement
    uses_others: bool
    """Whether inputs are drawn with other generators of random numbers than PyTorch's."""
    output_specs: tuple[TensorSpec, ...]
    runs_in_float64: bool
    mutates_inputs: bool
    can_change_weights: bool
    families: dict[str, ReferenceError]
    domain: Domain
    """What holds of the problem's inputs in every draw."""
    constants: str
    """Literal of a call's arguments that are no tensors, by their places."""


_known: dict[tuple[str, int, str, PrecisionClass], _Traits] = {}
"""By problem, weights, device and class, for this process's life; about a kilobyte each. Who tries
a problem and then judges it makes two oracles of it."""


def tells(draw: Draw, error: ReferenceError) -> bool:
    """Whether an output for `draw`, where the reference is off by `error`, says anything."""
    return draw.is_own or error.relative_l2 <= TOO_HARD


class Oracle:
    """Inputs and answers of one problem.

    Raises:
        SuiteError: the reference cannot be judged (admission should have rejected it).
        OutOfMemoryError: PyTorch's; the device's memory is too small, or in others' hands.
    """

    def __init__(
        self, problem: Problem, *, weight_seed: int, device: torch.device,
        precision: PrecisionClass = PrecisionClass.STRICT,
    ) -> None:  # fmt: skip
        from cudal1.harness.operators import rounding

        self.device = device
        self._rounding = rounding(precision)
        self._max_error = MAX_FAMILY_ERROR if self._rounding is None else TOO_HARD
        self.problem = problem
        self._code = ReferenceCode(problem)
        with self._code:
            reference = load_reference(problem)
        self.init_inputs = repr(reference.init_inputs)
        self.constants = reference.constants
        self._draws = Draws(reference.draw, self._code, device)
        self._calls = Calls(self._code)
        self._families: dict[str, ReferenceError] = {}
        self.mutates_inputs = True
        who = problem.id, weight_seed, str(device), precision
        with kept_others():  # these seeds are public, and may decide nothing that comes later
            self._make_models(reference, weight_seed)
            if who not in _known:
                _known[who] = self._examined()
        self._take(_known[who], reference)

    def _make_models(self, reference: Reference, seed: int) -> None:
        """Make the reference, and another one in float64 where it can be."""
        self._model = self._made(reference, seed)
        if is_lazy(self._model):  # its first call makes the rest of its weights
            self._answer(self.draw(seed), exact=False)
        with self._code:
            self._weights = Weights(self._model, self.device)
        self.original_weights = self._weights.original()
        self._current = self.original_weights
        self.can_change_weights = bool(self.original_weights)
        self._exact: torch.nn.Module | None = None
        with suppress(RefusalError):
            exact = self._made(reference, seed)
            with self._code:
                load_by_name(exact.double(), self.original_weights)
            self._exact = exact

    def _made(self, reference: Reference, seed: int) -> torch.nn.Module:
        # made on the CPU and moved, as anyone would, and as the workers do
        with self._code:
            seed_torch(seed, self.device)
            seed_others(seed)
            return reference.make().to(self.device)

    @property
    def families(self) -> list[str]:
        """Kinds of inputs that say something about this problem, its own first."""
        return list(self._families)

    @property
    def invariants(self) -> tuple[str, ...]:
        """What holds of the inputs in every draw, in words; families of inputs keep it."""
        domain = self._draws.domain
        return domain.lines(tensor_places(len(domain.inputs), self.constants))

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The state dict that answers are computed with."""
        return self._current

    def error(self, family: str) -> ReferenceError:
        """How far the reference is from the exact answer on a family."""
        return self._families[family]

    @property
    def storages(self) -> tuple[TensorSpec, ...]:
        """What one set of inputs is in memory."""
        return self._draws.arrangement.storages

    @property
    def input_views(self) -> tuple[View, ...]:
        """What one set of inputs is to a call: views of its storages."""
        return self._draws.arrangement.views

    @property
    def output_specs(self) -> tuple[TensorSpec, ...]:
        """Types and shapes of the outputs of a call."""
        return self._calls.specs

    @property
    def weight_specs(self) -> tuple[TensorSpec, ...]:
        """Types and shapes of the weights."""
        return self._weights.specs

    def draw(self, seed: int, family: str = OWN) -> Draw:
        """Fresh inputs; the same seed and family give the same ones."""
        return self._draws.draw(seed, family)

    def deck(self, rng: random.Random) -> list[str]:
        """Every family once and the problem's own for a third of all, shuffled."""
        others = self.families[1:]
        cards = others + [OWN] * max(1, len(others) // 2)
        rng.shuffle(cards)
        return cards

    def change_weights(self, seed: int | None) -> None:
        """Compute answers with other weights from now on; None brings the first ones back."""
        if seed is None:
            self._current = self.original_weights
        else:
            seed_torch(seed, self.device)
            self._current = self._weights.changed(changed_weight)
        with self._code:
            load_by_name(self._model, self._current)
            if self._exact is not None:
                load_by_name(self._exact, self._current)

    def outputs(self, draw: Draw, mode: AbstractContextManager[object] | None = None) -> Tensors:
        """Return the reference's own outputs, computed under a mode that interferes with operators.

        Raises:
            RefusalError: it cannot do the input, or gives other kinds of outputs than usual.
        """
        return self._answer(draw, exact=False, mode=mode)

    def require(self, draws: Sequence[Draw]) -> None:
        """Find out whether the reference can do these inputs; leave out a family that it cannot.

        Raises:
            RefusalError: it cannot.
        """
        for draw in draws:
            try:
                self.outputs(draw)
            except RefusalError:
                if not draw.is_own:
                    self._families.pop(draw.family, None)
                raise

    def key(self, draw: Draw) -> Key:
        """The reference's own outputs for `draw`, and the error of its family."""
        return [(answer, self.error(draw.family)) for answer in self._answer(draw, exact=False)]

    def exact_key(self, draw: Draw) -> Key:
        """The outputs in float64 where the reference can be run in it.

        With each comes how far the reference itself is from it, on this very draw if that is
        farther than on its family: some draws (near ties, sums that cancel) are hard on everybody.
        With integers come the reference's own, and those of inputs that differ by rounding.
        """
        if self._exact is None:
            return self.key(draw)
        try:
            exacts = self._answer(draw, exact=True)
        except RefusalError:  # in this draw, such as a matrix that float64 finds singular
            return self.key(draw)
        known, key = self.error(draw.family), Key()
        plains = self._answer(draw, exact=False)
        nudged = [] if all(t.is_floating_point() for t in plains) else self._nudged(draw)
        errors = self._errors(draw, plains, exacts)
        for place, (plain, exact, error) in enumerate(zip(plains, exacts, errors, strict=True)):
            if not plain.is_floating_point():
                error = replace(error, others=(plain, *(answers[place] for answers in nudged)))
            key.append((exact, known.larger(error.at_most(TOO_HARD) if draw.is_own else error)))
        return key

    def _errors(self, draw: Draw, plains: Tensors, exacts: Tensors) -> list[ReferenceError]:
        """How far the reference is off in each output, and one that rounds as the class allows."""
        errors = [reference_error(x, y) for x, y in zip(plains, exacts, strict=True)]
        if self._rounding is None:
            return errors
        from cudal1.harness.operators import Rounding

        try:
            rounded = self.outputs(draw, Rounding(self._rounding))
        except RefusalError:  # its operators cannot be interfered with
            return errors
        return [
            error.larger(reference_error(x, y).times(ROUNDED_SHARE))
            for error, x, y in zip(errors, rounded, exacts, strict=True)
        ]

    def work(self) -> Work:
        """What a call provably cannot do without, on the problem's own inputs."""
        draws = [self.draw(seed).inputs for seed in EXAMINED_SEEDS[:2]]
        inexactness = self.error(OWN).relative_l2
        try:
            return least_work(self._model, draws, inexactness=inexactness, code=self._code)
        except RefusalError:
            return NO_WORK

    def _nudged(self, draw: Draw) -> list[Tensors]:
        """Exact answers to inputs that are off by what an honest candidate's rounding amounts to.

        An integer is decided by numbers that may lie as near to each other as to a rounding error:
        two largest values, a half to be rounded. What such a nudge decides otherwise, others may.
        """
        if not any(t.is_floating_point() for t in draw.inputs):
            return []
        assert self._exact is not None
        answers: list[Tensors] = []
        for _ in range(NUM_NUDGES):
            inputs = self._draws.given(draw, self._copying(nudged))
            with suppress(RefusalError):
                answers.append(self._calls.exact(self._exact, inputs))
        return answers

    def _answer(
        self, draw: Draw, *, exact: bool, mode: AbstractContextManager[object] | None = None
    ) -> Tensors:
        if exact and self._exact is not None:
            return self._calls.exact(
                self._exact, self._draws.given(draw, self._copying(_as_double))
            )
        change = _copied if self.mutates_inputs else None
        return self._calls.plain(self._model, self._draws.given(draw, change), mode)

    def _copying(self, change: Change) -> Change:
        """Return the change, done to copies where the reference writes to its inputs."""
        return (lambda tensor: change(tensor.clone())) if self.mutates_inputs else change

    def _take(self, traits: _Traits, reference: Reference) -> None:
        self._draws = Draws(
            reference.draw, self._code, self.device,
            arrangement=traits.arrangement, uses_others=traits.uses_others, domain=traits.domain,
        )  # fmt: skip
        self.constants.update(ast.literal_eval(traits.constants))
        self._calls.specs = traits.output_specs
        self.mutates_inputs = traits.mutates_inputs
        self.can_change_weights = traits.can_change_weights
        self._families = traits.families
        if not traits.runs_in_float64:
            self._exact = None

    def _examined(self) -> _Traits:
        """Learn output specs, whether float64 works, and which families and weights are usable."""
        first = self.draw(1)
        self._answer(first, exact=False)
        try:
            for seed in (1, *EXAMINED_SEEDS):
                self._answer(self.draw(seed), exact=True)
        except RefusalError:
            self._exact = None
        self.mutates_inputs = self._mutates(first)
        self._families[OWN] = self._family_error(OWN)
        if self.can_change_weights:
            changed = self._changed_weights_error()
            self.can_change_weights = changed.relative_l2 <= self._max_error
            if self.can_change_weights:
                self._families[OWN] = self._families[OWN].larger(changed)
        has_floats = any(t.is_floating_point() for t in first.inputs)
        self._draws.learn_domain(first, EXAMINED_SEEDS[0])
        for family in list(FAMILIES)[1:] if has_floats else []:
            error = self._family_error(family, must_tell=True)
            if error.relative_l2 <= self._max_error:
                self._families[family] = error.larger(self._families[OWN])
        return _Traits(
            arrangement=self._draws.arrangement, uses_others=self._draws.has_used_others,
            output_specs=self._calls.specs,
            runs_in_float64=self._exact is not None, mutates_inputs=self.mutates_inputs,
            can_change_weights=self.can_change_weights, families=self._families,
            domain=self._draws.domain, constants=repr(self.constants),
        )  # fmt: skip

    def _changed_weights_error(self) -> ReferenceError:
        """How far the reference is off with other weights; infinite if it refuses them."""
        try:
            self.change_weights(7)
            return self._family_error(OWN, must_tell=True)
        except RefusalError:
            return ReferenceError(math.inf, math.inf)
        finally:
            self.change_weights(None)

    def _mutates(self, draw: Draw) -> bool:
        import torch

        given = self._draws.given(draw, _copied)
        self._calls.plain(self._model, given)
        return any(not torch.equal(a, b) for a, b in zip(given, draw.inputs, strict=True))

    def _family_error(self, family: str, *, must_tell: bool = False) -> ReferenceError:
        largest, is_changed = ReferenceError(0.0, 0.0), False
        for seed in EXAMINED_SEEDS:
            draw = self.draw(seed, family)
            if not draw.is_changed:
                continue
            is_changed = True
            try:
                plain, exact = self._answer(draw, exact=False), self._answer(draw, exact=True)
            except RefusalError:
                if not must_tell:  # the problem's own
                    raise
                return ReferenceError(math.inf, math.inf)
            if must_tell and not all(_is_telling(output) for output in plain):
                return ReferenceError(math.inf, math.inf)
            for error in self._errors(draw, plain, exact):
                largest = largest.larger(error.at_most(TOO_HARD) if family == OWN else error)
        return largest if is_changed else ReferenceError(math.inf, math.inf)


def _is_telling(output: torch.Tensor) -> bool:
    """Whether an output is finite and not the same everywhere."""
    import torch

    spread = bool(output.numel() == 1 or output.max() > output.min())
    return bool(torch.isfinite(output).all()) and spread


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


def _as_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
