"""The judge's own copy of a problem: it draws inputs and computes answers.

Runs the *reference*, which admission has tried in a process of its own, and never a candidate.
Long because what is learned of a reference once and what is asked of it later are the same calls.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cudal1.errors import SuiteError
from cudal1.harness.correctness import ReferenceError, reference_error
from cudal1.harness.families import FAMILIES, OWN, change_inputs, changed_weight, nudge
from cudal1.harness.reference import load_reference
from cudal1.harness.roofline import Work, least_work
from cudal1.harness.shortage import raise_shortage
from cudal1.harness.wire import DTYPES, TensorSpec
from cudal1.problem import Problem
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch

Tensors = list["torch.Tensor"]
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
REFUSALS = (
    ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError,
    ValueError,
)  # fmt: skip
"""What a reference raises on inputs or a dtype that it was not made for: a matrix that is not
positive definite, an operator without a float64 kernel, a dtype spelled out or asserted. To want
for memory is none (`shortage`): what was learned without would be believed afterwards, too."""


@dataclass(frozen=True)
class _Traits:
    """What is learned of a reference once: it takes dozens of calls in float64."""

    input_specs: tuple[TensorSpec, ...]
    output_specs: tuple[TensorSpec, ...]
    weight_specs: tuple[TensorSpec, ...]
    runs_in_float64: bool
    mutates_inputs: bool
    can_change_weights: bool
    families: dict[str, ReferenceError]


_known: dict[tuple[str, int, str, PrecisionClass], _Traits] = {}
"""By problem, weights, device and class, for this process's life; about a kilobyte each. Who tries
a problem and then judges it makes two oracles of it."""


def tells(draw: Draw, error: ReferenceError) -> bool:
    """Whether an output for `draw`, where the reference is off by `error`, says anything."""
    return draw.is_own or error.relative_l2 <= TOO_HARD


@dataclass(frozen=True, eq=False)
class Draw:
    """One set of inputs, private to the judge until it is published; equal to itself alone."""

    inputs: Tensors
    family: str

    @property
    def is_own(self) -> bool:
        """Whether the problem's own generator may draw it."""
        return self.family == OWN


class Oracle:
    """Inputs and answers of one problem.

    Raises:
        SuiteError: the reference cannot be run here (admission should have rejected it).
        OutOfMemoryError: PyTorch's; the device's memory is too small, or in others' hands.
    """

    def __init__(
        self, problem: Problem, *, weight_seed: int, device: torch.device,
        precision: PrecisionClass = PrecisionClass.STRICT,
    ) -> None:  # fmt: skip
        import torch

        from cudal1.harness.operators import rounding

        self.device = device
        self._rounding = rounding(precision)
        self._max_error = MAX_FAMILY_ERROR if self._rounding is None else TOO_HARD
        self.problem = problem
        reference = load_reference(problem)
        self._draw, self.init_inputs = reference.draw, repr(reference.init_inputs)
        self._families: dict[str, ReferenceError] = {}
        self.mutates_inputs = True
        who = problem.id, weight_seed, str(device), precision
        try:
            # made on the CPU and moved, as anyone would, and as the workers do
            torch.default_generator.manual_seed(weight_seed)
            self._model: torch.nn.Module = reference.make().to(device)
            torch.default_generator.manual_seed(weight_seed)
            self._exact: torch.nn.Module | None = reference.make().to(device).double()
            self.original_weights = {
                name: tensor.detach().clone().contiguous()
                for name, tensor in self._model.state_dict().items()
            }
            self._current = self.original_weights
            self.can_change_weights = bool(self.original_weights)
            if who not in _known:
                _known[who] = self._examined()
            self._take(_known[who])
        except REFUSALS as error:
            raise_shortage(error)
            said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            raise SuiteError(f"{problem.key}: its reference raises {said}") from error

    @property
    def families(self) -> list[str]:
        """Kinds of inputs that say something about this problem, its own first."""
        return list(self._families)

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The state dict that answers are computed with."""
        return self._current

    def error(self, family: str) -> ReferenceError:
        """How far the reference is from the exact answer on a family."""
        return self._families[family]

    def draw(self, seed: int, family: str = OWN) -> Draw:
        """Fresh inputs; the same seed and family give the same ones."""
        self._seed(seed)
        with self.device:
            inputs = [tensor.to(self.device) for tensor in self._draw()]
            return Draw(change_inputs(inputs, family), family)

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
            self._seed(seed)
            self._current = {
                name: changed_weight(tensor) for name, tensor in self.original_weights.items()
            }
        self._model.load_state_dict(self._current)
        if self._exact is not None:
            self._exact.load_state_dict(self._current)

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
        except REFUSALS as error:  # in this draw, such as a matrix that float64 finds singular
            raise_shortage(error)
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

        with Rounding(self._rounding):
            rounded = self._answer(draw, exact=False)
        return [
            error.larger(reference_error(x, y).times(ROUNDED_SHARE))
            for error, x, y in zip(errors, rounded, exacts, strict=True)
        ]

    def _seed(self, seed: int) -> None:
        import torch

        # torch.manual_seed would also queue a seeding of CUDA, with a formatted stack, each time
        torch.default_generator.manual_seed(seed % 2**63)
        if self.device.type == "cuda":
            torch.cuda.default_generators[torch.cuda.current_device()].manual_seed(seed % 2**63)

    def work(self) -> Work:
        """What a call provably cannot do without, on the problem's own inputs."""
        draws = [self.draw(seed).inputs for seed in EXAMINED_SEEDS[:2]]
        return least_work(self._model, draws, inexactness=self.error(OWN).relative_l2)

    def _nudged(self, draw: Draw) -> list[Tensors]:
        """Exact answers to inputs that are off by what an honest candidate's rounding amounts to.

        An integer is decided by numbers that may lie as near to each other as to a rounding error:
        two largest values, a half to be rounded. What such a nudge decides otherwise, others may.
        """
        if not any(t.is_floating_point() for t in draw.inputs):
            return []
        answers: list[Tensors] = []
        for _ in range(NUM_NUDGES):
            try:
                nudged = Draw(nudge(draw.inputs), draw.family)
                answers.append(self._answer(nudged, exact=True))
            except REFUSALS as error:
                raise_shortage(error)
                continue
        return answers

    def _answer(self, draw: Draw, *, exact: bool) -> Tensors:
        import torch

        with torch.no_grad():
            if exact and self._exact is not None:
                inputs = [t.double() if t.is_floating_point() else t for t in self._given(draw)]
                return _as_list(self._exact(*inputs))
            return _as_list(self._model(*self._given(draw)))

    def _given(self, draw: Draw) -> Tensors:
        return [t.clone() for t in draw.inputs] if self.mutates_inputs else draw.inputs

    def _take(self, traits: _Traits) -> None:
        self.input_specs = traits.input_specs
        self.output_specs = traits.output_specs
        self.weight_specs = traits.weight_specs
        self.mutates_inputs = traits.mutates_inputs
        self.can_change_weights = traits.can_change_weights
        self._families = traits.families
        if not traits.runs_in_float64:
            self._exact = None

    def _examined(self) -> _Traits:
        """Learn output specs, whether float64 works, and which families and weights are usable."""
        first = self.draw(1)
        outputs = self._answer(first, exact=False)
        try:
            for seed in (1, *EXAMINED_SEEDS):
                self._answer(self.draw(seed), exact=True)
        except REFUSALS as error:
            raise_shortage(error)
            self._exact = None
        self.mutates_inputs = self._mutates(first)
        self._families[OWN] = self._family_error(OWN)
        if self.can_change_weights:
            self.change_weights(7)
            changed = self._family_error(OWN, must_tell=True)
            self.can_change_weights = changed.relative_l2 <= self._max_error
            self.change_weights(None)
            if self.can_change_weights:
                self._families[OWN] = self._families[OWN].larger(changed)
        has_floats = any(t.is_floating_point() for t in first.inputs)
        for family in list(FAMILIES)[1:] if has_floats else []:
            error = self._family_error(family, must_tell=True)
            if error.relative_l2 <= self._max_error:
                self._families[family] = error.larger(self._families[OWN])
        return _Traits(
            input_specs=tuple(_spec(t) for t in first.inputs),
            output_specs=tuple(_spec(t) for t in outputs),
            weight_specs=tuple(_spec(t) for t in self.original_weights.values()),
            runs_in_float64=self._exact is not None, mutates_inputs=self.mutates_inputs,
            can_change_weights=self.can_change_weights, families=self._families,
        )  # fmt: skip

    def _mutates(self, draw: Draw) -> bool:
        import torch

        given = [t.clone() for t in draw.inputs]
        with torch.no_grad():
            self._model(*given)
        return any(not torch.equal(a, b) for a, b in zip(given, draw.inputs, strict=True))

    def _family_error(self, family: str, *, must_tell: bool = False) -> ReferenceError:
        largest = ReferenceError(0.0, 0.0)
        for seed in EXAMINED_SEEDS:
            draw = self.draw(seed, family)
            try:
                plain, exact = self._answer(draw, exact=False), self._answer(draw, exact=True)
            except REFUSALS as error:
                raise_shortage(error)
                if not must_tell:  # the problem's own
                    raise
                return ReferenceError(math.inf, math.inf)
            if must_tell and not all(_is_telling(output) for output in plain):
                return ReferenceError(math.inf, math.inf)
            for error in self._errors(draw, plain, exact):
                largest = largest.larger(error.at_most(TOO_HARD) if family == OWN else error)
        return largest


def _is_telling(output: torch.Tensor) -> bool:
    """Whether an output is finite and not the same everywhere."""
    import torch

    spread = bool(output.numel() == 1 or output.max() > output.min())
    return bool(torch.isfinite(output).all()) and spread


def _as_list(result: Any) -> Tensors:
    return list(result) if isinstance(result, tuple | list) else [result]


def _spec(tensor: torch.Tensor) -> TensorSpec:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise SuiteError(f"tensors of {dtype} cannot be judged")
    return TensorSpec(dtype, tuple(tensor.shape))
