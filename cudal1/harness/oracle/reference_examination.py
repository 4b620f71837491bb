"""Examine a reference once, and make its `Traits`.

This module runs the *reference*, which admission has tried in a process of its own, and never a
candidate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cudal1.harness.inputs.draws import Draw, Tensors
from cudal1.harness.inputs.families import FAMILIES, OWN
from cudal1.harness.oracle.answering import TOO_HARD, Answering, copied, errors_of
from cudal1.harness.oracle.correctness import ReferenceError
from cudal1.harness.oracle.effect import Effect, effect, is_noticed
from cudal1.harness.oracle.models import Models
from cudal1.harness.oracle.parts import flat_parts
from cudal1.harness.oracle.roofline import NO_WORK, Work, least_work
from cudal1.harness.oracle.traits import FARTHEST, FamilyError, Traits
from cudal1.harness.reference.reference_code import ReferenceCode, RefusalError
from cudal1.harness.shared.weights import Weights, is_lazy, load_by_name
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch

MAX_FAMILY_ERROR = 1e-3
"""Largest error of the reference on a family in class `strict`; a family with a larger one says
nothing. In the looser classes the limit is `TOO_HARD`."""
ALIKE, NOISE_MARGIN = 1e-6, 4.0
"""Largest difference between outputs of two models with the same weights. The first is absolute;
the second is a factor on the difference between runs of one model. The larger limit counts."""
EXAMINED_SEEDS = (11, 12, 13)
SETTLED, MANY = 8.0, 1 << 14
"""Factor, and elements of each output. A family with an error so many times below the limit, the
problem's own too, is not drawn again, where outputs have so many elements. Their error hardly
varies from draw to draw."""
NO_ERROR = ReferenceError(0.0, 0.0)
UNTOLD = ReferenceError(math.inf, math.inf)
"""Error on inputs that say nothing: the reference refuses them, or its outputs are flat or not
finite."""


class ReferenceExamination:
    """Examines one reference.

    Args:
        answering: has the reference answer draws; learns whether a call writes to its inputs.
        models: of the reference; the one in float64 is dropped where it cannot be run.
        code: surrounds whatever runs the reference.
        precision: the class that candidates have to meet.
    """

    def __init__(
        self, answering: Answering, models: Models, code: ReferenceCode, precision: PrecisionClass
    ) -> None:
        from cudal1.harness.oracle.operators import rounding

        self._answering = answering
        self._models = models
        self._code = code
        self._precision = precision
        self._max_error = MAX_FAMILY_ERROR if rounding(precision) is None else TOO_HARD
        self._off_by = 0.0
        """Largest error of the reference's outputs against those in float64, on its own inputs."""

    def traits(self, constants: dict[int, object]) -> Traits:
        """Learn output specs, whether float64 works, and which families and weights are usable.

        `constants` fills with a call's arguments that are no tensors as inputs are drawn.

        Raises:
            SuiteError: the reference cannot be judged.
        """
        draws, models = self._answering.draws, self._models
        first = draws.draw(1)
        is_seeded, is_carried = self._look_first(first)
        draws.learn_domain(first, EXAMINED_SEEDS[0])
        has_floats = any("float" in view.dtype for view in draws.arrangement.views)
        names = list(FAMILIES) if has_floats else [OWN]
        try:
            errors = self._family_errors(names)
        except RefusalError:
            if models.exact is None:
                raise
            models.exact, self._off_by = None, 0.0  # it cannot be run in float64
            errors = self._family_errors(names)
        can_change_weights = bool(models.original_weights)
        if can_change_weights:
            changed = self._changed_weights_error()
            can_change_weights = changed.relative_l2 <= self._max_error
            if can_change_weights:
                errors[OWN] = errors[OWN].larger(changed)
        families = {family: error.larger(errors[OWN]) for family, error in errors.items()}
        moved = self._effect(first, families[OWN])
        return Traits(
            arrangement=draws.arrangement,
            uses_others=draws.has_used_others,
            output_specs=self._answering.calls.specs,
            input_effect=moved.least,
            weakness=moved.weakness,
            runs_in_float64=models.exact is not None,
            off_by=self._off_by,
            mutates_inputs=self._answering.mutates_inputs,
            can_change_weights=can_change_weights,
            is_seeded=is_seeded,
            is_carried=is_carried,
            families={family: FamilyError.of(error) for family, error in families.items()},
            work=self._work(families[OWN]),
            domain=draws.domain,
            constants=repr(constants),
        )

    def _effect(self, first: Draw, error: ReferenceError) -> Effect:
        """Return the effect of the problem's own inputs, with the reference's error on these."""
        answering = self._answering

        def called(inputs: Tensors) -> Tensors | None:
            try:
                return [output.clone() for output in answering.plain(Draw(inputs, OWN))]
            except RefusalError:  # inputs of two draws may not fit together
                return None

        return effect(
            first.inputs,
            [output.clone() for output in answering.plain(first)],
            EXAMINED_SEEDS,
            lambda seed: answering.draws.draw(seed).inputs,
            called,
            lambda answers, outputs: is_noticed(answers, outputs, error, self._precision),
        )

    def _look_first(self, draw: Draw) -> tuple[bool, bool]:
        """Learn output specs, whether a call writes to its inputs, and what the seed decides."""
        import torch

        given = self._answering.draws.given(draw, copied)
        outputs = [out.clone() for out in self._answering.calls.plain(self._models.model, given)]
        pairs = zip(given, draw.inputs, strict=True)
        self._answering.mutates_inputs = any(not torch.equal(mine, drawn) for mine, drawn in pairs)
        return self._seeding(draw, outputs)

    def _seeding(self, draw: Draw, mine: Tensors) -> tuple[bool, bool]:
        """Return whether answers depend on the constructor's seed, and if only through weights."""
        answering, models = self._answering, self._models
        other = models.made(models.seed + 1)
        if is_lazy(other):  # no seed of the constructor decides what its first call draws
            return False, True
        allowed = NOISE_MARGIN * farthest_apart(mine, answering.plain(draw))
        theirs = answering.calls.plain(other, answering.draws.given(draw, copied))
        with self._code:
            drawn = Weights(other, models.device).original()
            # an answer may be the same for these weights and not for others
            is_seeded = any(not models.original_weights[name].equal(drawn[name]) for name in drawn)
            load_by_name(other, models.original_weights)
        carried = answering.calls.plain(other, answering.draws.given(draw, copied))
        is_seeded = is_seeded or farthest_apart(mine, theirs) > allowed
        return is_seeded, farthest_apart(mine, carried) <= max(ALIKE, allowed)

    def _changed_weights_error(self) -> ReferenceError:
        """Return the reference's error with other weights; infinite if it refuses them."""
        worst = NO_ERROR
        try:
            self._models.change_weights(7)
            for seed in EXAMINED_SEEDS:
                draw = self._answering.draws.draw(seed)
                worst = worst.larger(self._error_on(draw, must_tell=True))
                if not worst.relative_l2 <= self._max_error or self._is_settled(worst):
                    break
            return worst
        except RefusalError:
            return UNTOLD
        finally:
            self._models.change_weights(None)

    def _family_errors(self, families: Sequence[str]) -> dict[str, ReferenceError]:
        """Return the reference's error on each useful family, its own first.

        One draw of the generator makes a draw of every family. A family is drawn until it is given
        up or its error is settled. A family that changes nothing is of no use.
        """
        found = dict.fromkeys(families, NO_ERROR)
        changed = set[str]()
        for seed in EXAMINED_SEEDS:
            looked_at = [
                family
                for family, error in found.items()
                if family not in changed or not self._is_settled(error)
            ]
            for draw in self._answering.draws.variants(seed, looked_at):
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
        """Return whether the error of one draw shows that other draws' are small enough, too."""
        fewest = min(math.prod(spec.shape) for spec in self._answering.calls.specs)
        return fewest >= MANY and error.relative_l2 * SETTLED <= self._max_error

    def _error_on(self, draw: Draw, *, must_tell: bool) -> ReferenceError:
        """Return the reference's error on a draw; for its own inputs at most `TOO_HARD`.

        Without float64 it is what the class's rounding makes of the reference's own outputs.

        Raises:
            RefusalError: the reference cannot do the draw. If the draw must tell something,
                `UNTOLD` is returned instead, as where the outputs say nothing.
        """
        try:
            plain = self._answering.plain(draw)
            is_told = all(_is_telling(output) for output in plain)
            is_told = is_told and self._answering.is_in_range(draw, plain)
            if must_tell and not is_told:
                return UNTOLD
            is_exact = self._is_exact(draw)
            exact = self._answering.exact(draw) if is_exact else plain
        except RefusalError:
            if not must_tell:
                raise
            return UNTOLD
        errors = errors_of(plain, exact) if is_exact else [NO_ERROR] * len(plain)
        if draw.is_own and not must_tell:
            self._off_by = max(self._off_by, _farthest_off(errors, plain, exact))
        worst = NO_ERROR
        for error in self._answering.with_rounding(draw, errors, exact):
            worst = worst.larger(error.at_most(TOO_HARD) if draw.is_own else error)
        return worst

    def _is_exact(self, draw: Draw) -> bool:
        """Return whether the error on a draw is one against float64.

        On a GPU only the error on the problem's own inputs is. float64 at real sizes takes more of
        a GPU than all else, and outputs for another family are compared there with the reference's
        own first. Where these do not agree, float64 tells the error on that very draw, and whether
        it says anything (`tells`).
        """
        return draw.is_own or self._models.device.type != "cuda"

    def _work(self, own: ReferenceError) -> Work:
        """Return the work that a call provably cannot do without, on the problem's own inputs."""
        draws = [self._answering.draws.draw(seed).inputs for seed in EXAMINED_SEEDS[:2]]
        try:
            return least_work(
                self._models.model, draws, inexactness=own.relative_l2, code=self._code
            )
        except RefusalError:
            return NO_WORK


def _farthest_off(errors: Sequence[ReferenceError], plains: Tensors, exacts: Tensors) -> float:
    """Return the largest error of a call's outputs; for integers, the share that differs."""
    off_by = [
        error.relative_l2 if x.is_floating_point() else float((x != y).double().mean())
        for error, x, y in zip(errors, plains, exacts, strict=True)
    ]
    return min(FARTHEST, max(off_by))


def _is_telling(output: torch.Tensor) -> bool:
    """Return whether an output is finite and not the same everywhere."""
    import torch

    low, high = output.aminmax()  # NaN if any element is
    spread = bool(output.numel() == 1 or high > low)
    return bool(torch.isfinite(low) & torch.isfinite(high)) and spread


def farthest_apart(ones: Tensors, others: Tensors) -> float:
    """Return the largest difference between outputs, over the largest number among them."""
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
