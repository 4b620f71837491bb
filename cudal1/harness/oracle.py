"""The judge's own copy of a problem: it draws inputs and computes answers.

Runs the *reference*, which admission has tried in a process of its own, and never a candidate.
Long because what is learned of a reference once (`traits`) and what is asked of it later are the
same calls.
"""

from __future__ import annotations

import ast
import math
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from cudal1.harness.calls import Calls
from cudal1.harness.correctness import ReferenceError, reference_error
from cudal1.harness.draws import Change, Draw, Draws, Tensors
from cudal1.harness.families import FAMILIES, OWN, changed_weight, nudged
from cudal1.harness.parts import flat_parts
from cudal1.harness.reference import load_reference
from cudal1.harness.reference_code import ReferenceCode, RefusalError
from cudal1.harness.roofline import NO_WORK, Work, least_work
from cudal1.harness.seeding import kept_others, seed_others, seed_torch
from cudal1.harness.traits import FamilyError, Traits
from cudal1.harness.turns import Turns
from cudal1.harness.weights import Weights, is_lazy, load_by_name
from cudal1.harness.wire import TensorSpec, View, tensor_places
from cudal1.problem import Problem
from cudal1.protocol import Mode, PrecisionClass

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
ALIKE, NOISE_MARGIN = 1e-6, 4.0
"""Outputs of two models with the same weights differ by no more, or by no more than so many times
what those of one model differ from run to run."""
EXAMINED_SEEDS = (11, 12, 13)
SETTLED, MANY = 8.0, 1 << 14
"""A family on which the reference is off by so much less than the most is not drawn again to find
out, where each output has so many elements: their error hardly varies from draw to draw."""
NUM_NUDGES = 4
UNTOLD = ReferenceError(math.inf, math.inf)
"""Of inputs that say nothing: the reference refuses them, or its outputs are flat or not finite."""

_known: dict[tuple[str, int, str, PrecisionClass, Mode], Traits] = {}
"""By problem, weights, device and class, for this process's life; a few kilobytes each. A pool that
meets a problem again makes another oracle of it."""


def tells(draw: Draw, error: ReferenceError) -> bool:
    """Whether an output for `draw`, where the reference is off by `error`, says anything."""
    return draw.is_own or error.relative_l2 <= TOO_HARD


class InForce(NamedTuple):
    """Weights, and the models that compute with them."""

    seed: int
    model: torch.nn.Module
    exact: torch.nn.Module | None
    weights: Weights
    current: dict[str, torch.Tensor]


class Oracle:
    """Inputs and answers of one problem.

    Args:
        problem: its reference runs here.
        weight_seed: of the weights that answers are computed with at first.
        device: where they are computed.
        precision: the class that candidates have to meet.
        mode: in which the reference runs.
        traits: what is known of the reference under all of this; None: it is found out.

    Raises:
        SuiteError: the reference cannot be judged (admission should have rejected it).
        OutOfMemoryError: PyTorch's; the device's memory is too small, or in others' hands.
    """

    def __init__(
        self, problem: Problem, *, weight_seed: int, device: torch.device,
        precision: PrecisionClass = PrecisionClass.STRICT, mode: Mode = Mode.CONSTRUCTED,
        turns: Turns | None = None,
        traits: Traits | None = None,
    ) -> None:  # fmt: skip
        from cudal1.harness.operators import narrowest, rounding

        self.device = device
        self._rounding = rounding(precision)
        self._narrowest = narrowest(precision)
        self._max_error = MAX_FAMILY_ERROR if self._rounding is None else TOO_HARD
        self.problem = problem
        self._mode = mode
        self._turns = turns or Turns()
        self._code = ReferenceCode(problem)
        with self._code:
            reference = load_reference(problem)
        self._reference = reference
        self.init_inputs = repr(reference.init_inputs)
        self.constants = reference.constants
        self._draws = Draws(reference.draw, self._code, device)
        self._calls = Calls(self._code, self._turns)
        self._families: dict[str, ReferenceError] = {}
        self.mutates_inputs = True
        self.is_seeded = self.is_carried = True
        self._seed = weight_seed
        who = problem.id, weight_seed, str(device), precision, mode
        known = traits or _known.get(who)
        with kept_others():  # these seeds are public, and may decide nothing that comes later
            self._make_models(weight_seed, exact=known is None or known.runs_in_float64)
            self.traits = _known[who] = known or self._examined()
        self._take(self.traits)

    def _make_models(self, seed: int, *, exact: bool) -> None:
        """Make the reference and, where it can be and is asked for, another one in float64."""
        self._model = self._made(seed)
        if is_lazy(self._model):  # its first call makes the rest of its weights
            self._answer(self.draw(seed), exact=False)
        self._take_weights(self._model)
        self.can_change_weights = bool(self.original_weights)
        self._exact: torch.nn.Module | None = None
        if exact:
            with suppress(RefusalError):
                self._exact = self._made_exact(seed)

    def _made(self, seed: int) -> torch.nn.Module:
        # made on the CPU and moved, as anyone would, and as the workers do
        with self._turns.elsewhere(), self._code:
            seed_torch(seed, self.device)
            seed_others(seed)
            made = self._reference.make()
            if self._mode is not Mode.CONSTRUCTED:
                made.train(self._mode is Mode.TRAIN)
        with self._code:
            return made.to(self.device)

    def _made_exact(self, seed: int) -> torch.nn.Module:
        exact = self._made(seed)
        with self._code:
            load_by_name(exact.double(), self.original_weights)
        return exact

    def _take_weights(self, model: torch.nn.Module) -> None:
        with self._code:
            self._weights = Weights(model, self.device)
        self.original_weights = self._weights.original()
        self._current = self.original_weights

    def reseed(self, seed: int) -> None:
        """Compute answers with the weights that the constructor draws under a seed, from now on.

        Threat: candidates are told the seed. Whatever is drawn later is seeded anew (`draw`).
        """
        if seed == self._seed or not self.is_seeded:
            self.change_weights(None)
            return
        with kept_others():
            made = self._made(seed)
            self._seed = seed
            if self.is_carried:
                self._take_weights(made)
                self.change_weights(None)
                return
            self._model = made
            self._take_weights(made)
            if self._exact is not None:
                self._exact = self._made_exact(seed)

    @property
    def in_force(self) -> InForce:
        """The weights that answers are computed with, to be restored after others."""
        return InForce(self._seed, self._model, self._exact, self._weights, self._current)

    def restore(self, weights: InForce) -> None:
        """Compute answers with weights that were in force before; no constructor draws them."""
        self._seed, self._model, self._exact, self._weights, current = weights
        self.original_weights = self._weights.original()
        self._load(current)

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
        """Compute answers with other weights from now on; None brings the seed's back."""
        if seed is None:
            self._load(self.original_weights)
        else:
            seed_torch(seed, self.device)
            self._load(self._weights.changed(changed_weight))

    def _load(self, weights: dict[str, torch.Tensor]) -> None:
        """Have all models compute with these weights."""
        self._current = weights
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

    def exact_key(self, draw: Draw, plains: Tensors | None = None) -> Key:
        """The outputs in float64 where the reference can be run in it.

        `plains` are the reference's own outputs for `draw`, if they are there already.

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
        plains = plains or self._answer(draw, exact=False)
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

    def is_in_range(self, draw: Draw) -> bool:
        """Whether operators of the narrowest type that the class allows reach no infinity.

        float16 ends at 65,504. The problem's own inputs are its business; on those of another
        family, which may be a hundred times as large, a candidate in float16 owes no more.
        """
        if self._narrowest is None or draw.is_own:
            return True
        from cudal1.harness.operators import Rounding

        try:
            narrow = self.outputs(draw, Rounding(self._narrowest))
        except RefusalError:  # its operators cannot be interfered with
            return True
        pairs = zip(narrow, self.outputs(draw), strict=True)
        return all(x.isfinite().equal(y.isfinite()) for x, y in pairs)

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

    def _take(self, traits: Traits) -> None:
        self._draws = Draws(
            self._reference.draw, self._code, self.device,
            arrangement=traits.arrangement, uses_others=traits.uses_others, domain=traits.domain,
        )  # fmt: skip
        self.constants.update(ast.literal_eval(traits.constants))
        self._calls.specs = traits.output_specs
        self.mutates_inputs = traits.mutates_inputs
        self.can_change_weights = traits.can_change_weights
        self.is_seeded, self.is_carried = traits.is_seeded, traits.is_carried
        self._families = {
            family: error.reference_error for family, error in traits.families.items()
        }
        if not traits.runs_in_float64:
            self._exact = None

    # --- what is learned once --------------------------------------------------------------------

    def _examined(self) -> Traits:
        """Learn output specs, whether float64 works, and which families and weights are usable."""
        first = self.draw(1)
        self._look_first(first)
        self._draws.learn_domain(first, EXAMINED_SEEDS[0])
        has_floats = any("float" in view.dtype for view in self._draws.arrangement.views)
        families = list(FAMILIES) if has_floats else [OWN]
        try:
            errors = self._family_errors(families)
        except RefusalError:
            if self._exact is None:
                raise
            self._exact = None  # it cannot be run in float64
            errors = self._family_errors(families)
        if self.can_change_weights:
            changed = self._changed_weights_error()
            self.can_change_weights = changed.relative_l2 <= self._max_error
            if self.can_change_weights:
                errors[OWN] = errors[OWN].larger(changed)
        self._families = {family: error.larger(errors[OWN]) for family, error in errors.items()}
        return Traits(
            arrangement=self._draws.arrangement, uses_others=self._draws.has_used_others,
            output_specs=self._calls.specs,
            runs_in_float64=self._exact is not None, mutates_inputs=self.mutates_inputs,
            can_change_weights=self.can_change_weights, is_seeded=self.is_seeded,
            is_carried=self.is_carried,
            families={family: FamilyError.of(error) for family, error in self._families.items()},
            work=self._work(), domain=self._draws.domain, constants=repr(self.constants),
        )  # fmt: skip

    def _look_first(self, draw: Draw) -> None:
        """Learn output specs, whether a call writes to its inputs, and what the seed decides."""
        import torch

        given = self._draws.given(draw, _copied)
        outputs = [output.clone() for output in self._calls.plain(self._model, given)]
        pairs = zip(given, draw.inputs, strict=True)
        self.mutates_inputs = any(not torch.equal(mine, drawn) for mine, drawn in pairs)
        self.is_seeded, self.is_carried = self._seeding(draw, outputs)

    def _seeding(self, draw: Draw, mine: Tensors) -> tuple[bool, bool]:
        """Whether answers depend on the constructor's seed, and all of that on its weights."""
        other = self._made(self._seed + 1)
        if is_lazy(other):  # what its first call draws, no seed of the constructor decides
            return False, True
        allowed = NOISE_MARGIN * farthest_apart(mine, self._answer(draw, exact=False))
        theirs = self._calls.plain(other, self._draws.given(draw, _copied))
        with self._code:
            drawn = Weights(other, self.device).original()
            # an answer may be the same for these weights and not for others
            is_seeded = any(not self.original_weights[name].equal(drawn[name]) for name in drawn)
            load_by_name(other, self.original_weights)
        carried = self._calls.plain(other, self._draws.given(draw, _copied))
        is_seeded = is_seeded or farthest_apart(mine, theirs) > allowed
        return is_seeded, farthest_apart(mine, carried) <= max(ALIKE, allowed)

    def _changed_weights_error(self) -> ReferenceError:
        """How far the reference is off with other weights; infinite if it refuses them."""
        worst = ReferenceError(0.0, 0.0)
        try:
            self.change_weights(7)
            for seed in EXAMINED_SEEDS:
                worst = worst.larger(self._error_on(self.draw(seed), must_tell=True))
                if not worst.relative_l2 <= self._max_error:
                    break
            return worst
        except RefusalError:
            return UNTOLD
        finally:
            self.change_weights(None)

    def _family_errors(self, families: Sequence[str]) -> dict[str, ReferenceError]:
        """How far the reference is off on each family, its own first, without those of no use.

        One draw of the generator makes a draw of every family. A family other than its own is drawn
        no more once it is given up, or once that is settled. One that changes nothing is of no use.
        """
        found = dict.fromkeys(families, ReferenceError(0.0, 0.0))
        changed = set[str]()
        for seed in EXAMINED_SEEDS:
            looked_at = [
                family
                for family, error in found.items()
                if family == OWN or family not in changed or not self._is_settled(error)
            ]
            for draw in self._draws.variants(seed, looked_at):
                if not draw.is_changed:
                    continue
                changed.add(draw.family)
                error = self._error_on(draw, must_tell=not draw.is_own)
                if draw.is_own or error.relative_l2 <= self._max_error:
                    found[draw.family] = found[draw.family].larger(error)
                else:
                    del found[draw.family]
        return {family: error for family, error in found.items() if family in changed}

    def _is_settled(self, error: ReferenceError) -> bool:
        """Whether the error of one draw tells that of others is small enough, too."""
        fewest = min(math.prod(spec.shape) for spec in self._calls.specs)
        return fewest >= MANY and error.relative_l2 * SETTLED <= self._max_error

    def _error_on(self, draw: Draw, *, must_tell: bool) -> ReferenceError:
        """How far the reference is off on a draw, of its own inputs at most `TOO_HARD`.

        Raises:
            RefusalError: it cannot do the draw, unless it must tell something: then `UNTOLD` is
                returned, as where the outputs say nothing.
        """
        try:
            plain = self._answer(draw, exact=False)
            is_told = all(_is_telling(output) for output in plain) and self.is_in_range(draw)
            if must_tell and not is_told:
                return UNTOLD
            exact = self._answer(draw, exact=True)
        except RefusalError:
            if not must_tell:
                raise
            return UNTOLD
        worst = ReferenceError(0.0, 0.0)
        for error in self._errors(draw, plain, exact):
            worst = worst.larger(error.at_most(TOO_HARD) if draw.is_own else error)
        return worst

    def _work(self) -> Work:
        """What a call provably cannot do without, on the problem's own inputs."""
        draws = [self.draw(seed).inputs for seed in EXAMINED_SEEDS[:2]]
        inexactness = self.error(OWN).relative_l2
        try:
            return least_work(self._model, draws, inexactness=inexactness, code=self._code)
        except RefusalError:
            return NO_WORK


def _is_telling(output: torch.Tensor) -> bool:
    """Whether an output is finite and not the same everywhere."""
    import torch

    low, high = output.aminmax()  # NaN if any element is
    spread = bool(output.numel() == 1 or high > low)
    return bool(torch.isfinite(low) & torch.isfinite(high)) and spread


def farthest_apart(ones: Tensors, others: Tensors) -> float:
    """The largest difference between outputs, over the largest number among them."""
    import torch

    def apart(x: torch.Tensor, y: torch.Tensor) -> float:
        if x.equal(y):
            return 0.0
        found: list[torch.Tensor] = []
        for parts in flat_parts(x, y):
            one, other = (torch.nan_to_num(part.double()) for part in parts)
            size = torch.maximum(one.abs().max(), other.abs().max())
            found.append(torch.stack([(one - other).abs().max(), size]))
        difference, size = torch.stack(found).amax(dim=0)
        return float(difference / size)

    return max(apart(x, y) for x, y in zip(ones, others, strict=True))


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


def _as_double(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
