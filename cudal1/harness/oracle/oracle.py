"""Run the judge's own copy of a problem: it draws inputs and computes answers.

This module runs the *reference*, which admission has tried in a process of its own, and never a
candidate.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING

from cudal1.harness.device.turns import Turns
from cudal1.harness.inputs.draws import Draw, Draws, Tensors
from cudal1.harness.inputs.families import OWN
from cudal1.harness.oracle.answering import TOO_HARD, Answering
from cudal1.harness.oracle.calls import Calls
from cudal1.harness.oracle.correctness import ReferenceError
from cudal1.harness.oracle.models import InForce, Models
from cudal1.harness.oracle.reference_examination import ReferenceExamination
from cudal1.harness.oracle.traits import Traits
from cudal1.harness.reference.reference import load_reference
from cudal1.harness.reference.reference_code import ReferenceCode, RefusalError
from cudal1.harness.shared.seeding import kept_others
from cudal1.harness.shared.wire import TensorSpec, View, tensor_places
from cudal1.problem import Problem
from cudal1.protocol import Mode, PrecisionClass

if TYPE_CHECKING:
    import torch

__all__ = ["Draw", "Key", "Oracle", "RefusalError", "Tensors"]

Key = list[tuple["torch.Tensor", ReferenceError]]
"""Each right output of a call, with the reference's error in it."""

_known: dict[tuple[str, int, str, PrecisionClass, Mode], Traits] = {}
"""Traits by problem, weights, device, class and mode, for this process's life; a few kilobytes
each. A pool that meets a problem again makes another oracle of it."""


class Oracle:
    """Inputs and answers of one problem.

    Args:
        problem: its reference runs here.
        weight_seed: of the weights that answers are computed with at first.
        device: where they are computed.
        precision: the class that candidates have to meet.
        mode: in which the reference runs.
        turns: of judges of the device; None: there are no others.
        traits: what is known of the reference under all of this; None: an examination finds it out.

    Raises:
        SuiteError: the reference cannot be judged (admission should have rejected it).
        OutOfMemoryError: PyTorch's; the device's memory is too small, or other processes have it.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        weight_seed: int,
        device: torch.device,
        precision: PrecisionClass = PrecisionClass.STRICT,
        mode: Mode = Mode.CONSTRUCTED,
        turns: Turns | None = None,
        traits: Traits | None = None,
    ) -> None:
        self.device = device
        self.problem = problem
        self._precision = precision
        turns = turns or Turns()
        self._code = ReferenceCode(problem)
        with self._code:
            reference = load_reference(problem)
        self._reference = reference
        self.init_inputs = repr(reference.init_inputs)
        self.constants = reference.constants
        self._models = Models(reference, self._code, device=device, mode=mode, turns=turns)
        draws = Draws(reference.draw, self._code, device)
        self._answering = Answering(self._models, draws, Calls(self._code, turns), precision)
        key = problem.id, weight_seed, str(device), precision, mode
        known = traits or _known.get(key)
        with kept_others():  # these seeds are public, and may decide nothing that comes later
            self._models.begin(
                weight_seed,
                exact=known is None or known.runs_in_float64,
                call=lambda: self._answering.plain(self.draw(weight_seed)),
            )
            self.traits = _known[key] = known or self._examined()
        self._take(self.traits)

    def _examined(self) -> Traits:
        """Examine the reference, and return its traits."""
        examination = ReferenceExamination(
            self._answering, self._models, self._code, self._precision
        )
        return examination.traits(self.constants)

    def _take(self, traits: Traits) -> None:
        self._answering.draws = Draws(
            self._reference.draw,
            self._code,
            self.device,
            arrangement=traits.arrangement,
            uses_others=traits.uses_others,
            domain=traits.domain,
        )
        self.constants.update(ast.literal_eval(traits.constants))
        self._answering.calls.specs = traits.output_specs
        self._answering.mutates_inputs = self.mutates_inputs = traits.mutates_inputs
        self.can_change_weights = traits.can_change_weights
        self.is_seeded, self.is_carried = traits.is_seeded, traits.is_carried
        self._families = {
            family: error.reference_error for family, error in traits.families.items()
        }
        if not traits.runs_in_float64:
            self._models.exact = None

    # --- weights ---------------------------------------------------------------------------------

    def reseed(self, seed: int) -> None:
        """Compute answers with the weights that the constructor draws under a seed.

        Threat: candidates are told the seed. Whatever is drawn later is seeded anew (`draw`).
        """
        if seed == self._models.seed or not self.is_seeded:
            self.change_weights(None)
            return
        with kept_others():
            self._models.reseed(seed, is_carried=self.is_carried)

    def change_weights(self, seed: int | None) -> None:
        """Compute answers with other weights; None brings the seed's back."""
        self._models.change_weights(seed)

    @property
    def original_weights(self) -> dict[str, torch.Tensor]:
        """The state dict that the constructor drew."""
        return self._models.original_weights

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The state dict that answers are computed with."""
        return self._models.current_weights

    @property
    def weight_specs(self) -> tuple[TensorSpec, ...]:
        """Types and shapes of the weights."""
        return self._models.weight_specs

    @property
    def in_force(self) -> InForce:
        """The weights that answers are computed with; `restore` takes them."""
        return self._models.in_force

    def restore(self, weights: InForce) -> None:
        """Compute answers with weights that were `in_force` earlier; no constructor draws them."""
        self._models.restore(weights)

    # --- inputs ----------------------------------------------------------------------------------

    @property
    def families(self) -> list[str]:
        """Kinds of inputs that say something about this problem, its own first."""
        return list(self._families)

    @property
    def invariants(self) -> tuple[str, ...]:
        """The invariants of the inputs, in words; families of inputs keep them."""
        domain = self._answering.draws.domain
        return domain.lines(tensor_places(len(domain.inputs), self.constants))

    def error(self, family: str) -> ReferenceError:
        """Return the reference's error against the exact answer on a family."""
        return self._families[family]

    @property
    def storages(self) -> tuple[TensorSpec, ...]:
        """The storages of one set of inputs in memory."""
        return self._answering.draws.arrangement.storages

    @property
    def input_views(self) -> tuple[View, ...]:
        """The inputs as a call gets them: views of their storages."""
        return self._answering.draws.arrangement.views

    @property
    def output_specs(self) -> tuple[TensorSpec, ...]:
        """Types and shapes of the outputs of a call."""
        return self._answering.calls.specs

    def draw(self, seed: int, family: str = OWN) -> Draw:
        """Return fresh inputs; the same seed and family give the same ones."""
        return self._answering.draws.draw(seed, family)

    def deck(self, rng: random.Random) -> list[str]:
        """Return all families, shuffled: the problem's own for a third of all, others once each."""
        others = self.families[1:]
        cards = others + [OWN] * max(1, len(others) // 2)
        rng.shuffle(cards)
        return cards

    # --- answers ---------------------------------------------------------------------------------

    def outputs(self, draw: Draw, mode: AbstractContextManager[object] | None = None) -> Tensors:
        """Return the reference's own outputs, computed under a mode that interferes with operators.

        Raises:
            RefusalError: the reference cannot do the input, or gives other kinds of outputs than
                usual.
        """
        return self._answering.plain(draw, mode)

    def require(self, draws: Sequence[Draw]) -> None:
        """Check that the reference can do these inputs; leave out a family that it cannot do.

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

    def key(self, draw: Draw, plains: Tensors | None = None) -> Key:
        """Return the reference's own outputs for `draw`, and the error of the draw's family.

        `plains` are these outputs, if they are known already.
        """
        answers = plains or self._answering.plain(draw)
        return [(answer, self.error(draw.family)) for answer in answers]

    def exact_key(self, draw: Draw, plains: Tensors | None = None) -> Key:
        """Return the outputs in float64, where the reference can be run in it, and their errors.

        `plains` are the reference's own outputs for `draw`, if they are known already.

        Each output comes with the reference's own error. That is the error on this draw, if it is
        larger than on the draw's family: some draws (near ties, sums that cancel) are hard for
        every program. Integers come with the reference's own answers, and those to inputs that
        differ by rounding.
        """
        if self._models.exact is None:
            return self.key(draw)
        try:
            exacts = self._answering.exact(draw)
        except RefusalError:  # for this draw only, such as a matrix that float64 finds singular
            return self.key(draw)
        known, key = self.error(draw.family), Key()
        plains = plains or self._answering.plain(draw)
        nudged = [] if all(t.is_floating_point() for t in plains) else self._answering.nudged(draw)
        errors = self._answering.errors(draw, plains, exacts)
        for place, (plain, exact, error) in enumerate(zip(plains, exacts, errors, strict=True)):
            if not plain.is_floating_point():
                error = replace(error, others=(plain, *(answers[place] for answers in nudged)))
            key.append((exact, known.larger(error.at_most(TOO_HARD) if draw.is_own else error)))
        return key

    def by_chance(self, draw: Draw, key: Key, seeds: Sequence[int]) -> list[ReferenceError]:
        """Return the errors that honest programs may make by chance; each seed takes a call.

        They are 0 where the answers are not in float64.
        """
        if not self._is_exact(key):
            return [ReferenceError(0.0, 0.0)] * len(key)
        return self._answering.by_chance(draw, [answer for answer, _ in key], seeds)

    def is_hard(self, draw: Draw, key: Key, seeds: Sequence[int]) -> bool:
        """Return whether honest programs may be so far off on a draw that it says nothing.

        It says something where the answers are not in float64. Each seed takes a call.
        """
        answers = [answer for answer, _ in key]
        return self._is_exact(key) and self._answering.is_hard(draw, answers, seeds)

    def _is_exact(self, key: Key) -> bool:
        """Return whether the answers are in float64."""
        import torch

        answers = [answer for answer, _ in key if answer.is_floating_point()]
        return self._models.exact is not None and all(y.dtype is torch.float64 for y in answers)

    def widened(self, key: Key, by_chance: Sequence[ReferenceError]) -> Key:
        """Return an exact key, for an output that it does not let pass, with errors by chance.

        These are limited as on the problem's own inputs: a draw that says something still does.
        """
        return [
            (answer, known.unless_like(error.at_most(TOO_HARD), self._precision))
            for (answer, known), error in zip(key, by_chance, strict=True)
        ]

    def is_in_range(self, draw: Draw) -> bool:
        """Return whether operators of the narrowest type in the class reach no infinity."""
        return self._answering.is_in_range(draw, self._answering.plain(draw))
