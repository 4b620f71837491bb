"""Compare outputs of a burst with the answers to its inputs, and explain a wrong output.

Threat: outputs are bytes that the judge holds. An answer is computed here after the output for its
input has been captured. The reference's worker may have given an answer before, to the judge alone.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from cudal1.harness.checks import guards
from cudal1.harness.checks.progress import Progress
from cudal1.harness.exchange.burst import Burst, BurstRunner
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.oracle.answering import tells
from cudal1.harness.oracle.correctness import Comparison, agree, compare
from cudal1.harness.oracle.exactness import Widening, are_near
from cudal1.harness.oracle.oracle import Draw, Key, Oracle, RefusalError
from cudal1.protocol import Contract, EvalProtocol
from cudal1.verdict import Status

if TYPE_CHECKING:
    import torch

NUM_REMEMBERED = 4
"""Number of bursts of which a right output is kept, to tell whether a later output repeats one."""
MAX_REMEMBERED_BYTES = 4 << 30
"""Bytes of these outputs that are kept, but for those of the last burst."""
MAX_WIDENED = 32
"""Number of a candidate's outputs for which answers are widened. An honest one needs that on one
input in a thousand."""

INPUTS_FOR_A_HARD_ONE = 8
"""Number of compared outputs after which one more of the problem's own inputs may say nothing. A
reference for which most inputs are hard is held to its answers, as far as they can be widened."""


class OutputCheck:
    """A comparison of a candidate's outputs with the oracle's answers.

    Args:
        oracle: computes the answers.
        runner: holds the outputs.
        protocol: says how close they must be.
        progress: the candidate's progress; notes what was compared and seen.
    """

    def __init__(
        self, oracle: Oracle, runner: BurstRunner, protocol: EvalProtocol, progress: Progress
    ) -> None:
        self.has_other_weights = False
        """True if the candidate's weights are others than the seed's."""
        self._oracle = oracle
        self._runner = runner
        self._protocol = protocol
        self._progress = progress
        self._earlier: deque[list[torch.Tensor]] = deque(maxlen=NUM_REMEMBERED)

    def compare(self, burst: Burst, *, exact: bool, reference: Burst | None) -> None:
        """Compare all outputs of a burst.

        The reference's worker may have run on the same inputs. Its outputs, which the judge holds,
        are then looked at first. What they do not settle is computed here.

        Raises:
            Failure: outputs are wrong.
        """
        self._refuse_misuse(burst)
        self._progress.compared.has_begun = True
        settled = set[int]() if reference is None else self._settled(burst, reference)
        self._progress.compared.num_inputs += len(settled)
        for slot, draw in enumerate(burst.draws):
            if slot in settled:
                continue
            outputs = self._runner.output(burst, slot)
            try:
                key, compared = self._held_to(draw, outputs, exact=exact)
            except RefusalError:
                if draw.is_own:
                    raise
                continue  # an input that the reference cannot do says nothing
            if self._failing(compared) and not self._oracle.is_in_range(draw):
                continue
            for comparison in compared.values():
                self._progress.compared.note(comparison, self._protocol.precision)
                if not comparison.meets(self._protocol.precision):
                    self._fail(burst, slot, comparison)
            self._progress.compared.num_inputs += bool(compared)
            if slot == 0 and reference is None:  # else it has been kept
                self._remember([y.to(x.dtype) for x, (y, _) in zip(outputs, key, strict=True)])
        self._runner.release(burst)

    def _refuse_misuse(self, burst: Burst) -> None:
        """Refuse writes to inputs that must stay, and outputs that lie where they must not.

        Raises:
            Failure: there are such writes or outputs.
        """
        if burst.inputs_changed and not self._oracle.mutates_inputs:
            self._progress.saw(leaves_inputs=False)
        if self._progress.seen.leaves_inputs is False and self._is_drop_in:
            evidence = "an input in the ring was written to"
            raise Failure(
                Status.INCORRECT,
                "changed its inputs in place, which the reference does not",
                (guards.flag("changed_input", evidence),),
            )
        if burst.is_refused:
            evidence = "an output lies in pages that are shared or of a file"
            raise Failure(
                Status.INCORRECT,
                "an output lies in shared memory or in a file, where it may stand at several "
                "addresses: return a tensor of its own",
                (guards.flag("shared_pages", evidence),),
            )

    def _held_to(
        self, draw: Draw, outputs: list[torch.Tensor], *, exact: bool
    ) -> tuple[Key, dict[int, Comparison]]:
        """Return the answers that outputs are held to, and their comparison with these.

        Where outputs do not agree with the first answers, wider ones follow. Few of the problem's
        own inputs may be so hard for every program that no output is compared. An example is a sum
        before a ReLU that leaves one small element of hundreds. Threat: a candidate that is nearly
        right would have every output held to the widest, which take a hundred calls.
        """
        key = self._oracle.exact_key(draw) if exact else self._oracle.key(draw)
        compared = self._compared(draw, outputs, key)
        if not exact and self._failing(compared):
            key = self._oracle.exact_key(draw)  # may be hard on the reference, too
            compared = self._compared(draw, outputs, key)
        failing = self._failing(compared)
        if not failing or self._progress.num_widened == MAX_WIDENED:
            return key, compared
        widening = Widening(self._oracle, draw, key)
        if are_near([outputs[place] for place in failing], [key[place] for place in failing]):
            self._progress.num_widened += 1  # the reference may be lucky
            key = widening.key(
                lambda wider: not self._failing(self._compared(draw, outputs, wider))
            )
            compared = self._compared(draw, outputs, key)
            if not self._failing(compared):
                return key, compared
        if draw.is_own and self._may_be_hard and widening.is_hard():
            self._progress.num_hard += 1
            return key, {}
        return key, compared

    @property
    def _may_be_hard(self) -> bool:
        """True if one more of the problem's own inputs may say nothing."""
        num_others = self._progress.compared.num_inputs // INPUTS_FOR_A_HARD_ONE
        return self._progress.num_hard <= num_others

    def _compared(self, draw: Draw, outputs: list[torch.Tensor], key: Key) -> dict[int, Comparison]:
        """Return the comparison of each output that says something, by its place."""
        pairs = zip(outputs, key, strict=True)
        return {
            place: compare(output, answer, error)
            for place, (output, (answer, error)) in enumerate(pairs)
            if tells(draw, error)
        }

    def _failing(self, compared: dict[int, Comparison]) -> list[int]:
        """Return the places of outputs that do not meet the class."""
        precision = self._protocol.precision
        return [place for place, each in compared.items() if not each.meets(precision)]

    def _remember(self, answers: list[torch.Tensor]) -> None:
        """Keep the answers to a call, and as many earlier ones as there is room for."""
        self._earlier.append(answers)
        while len(self._earlier) > 1 and self._num_remembered_bytes() > MAX_REMEMBERED_BYTES:
            self._earlier.popleft()

    def _num_remembered_bytes(self) -> int:
        return sum(each.nbytes for answers in self._earlier for each in answers)

    def _settled(self, burst: Burst, reference: Burst) -> set[int]:
        """Return the calls with outputs that meet the asked class, after one look at all calls."""
        assert burst.draws == reference.draws
        self._remember([answer.clone() for answer in self._runner.output(reference, 0)])
        errors = [self._oracle.error(draw.family) for draw in burst.draws]
        settled = set(range(len(errors)))
        for outputs_NX, answers_NX in zip(
            self._runner.outputs(burst), self._runner.outputs(reference), strict=True
        ):
            found = agree(outputs_NX, answers_NX, errors, self._protocol.precision)
            settled &= {slot for slot, good in enumerate(found) if good}
        return settled

    def _agree(self, outputs: list[torch.Tensor], key: Key) -> bool:
        pairs = zip(outputs, key, strict=True)
        return all(compare(x, y, e).meets(self._protocol.precision) for x, (y, e) in pairs)

    def _fail(self, burst: Burst, slot: int, comparison: Comparison) -> None:
        compared, draw = self._progress.compared, burst.draws[slot]
        asked, met = self._protocol.precision, compared.precision
        compared.mismatch = (
            f"input {compared.num_inputs} ({draw.family}): "
            f"{comparison.mismatch or 'not comparable'}"
        )
        if met is not None:
            found = guards.flag("lower_precision", f"relative error {comparison.relative_l2:.1e}")
            raise Failure(
                Status.INCORRECT,
                f"correct only in the looser precision class {met}, not {asked}",
                (found,),
            )
        try:
            answers = [[y for y, _ in self._oracle.key(other)] for other in burst.draws]
        except RefusalError:  # it cannot do another call's input: there is nothing to compare with
            answers = []
        found = guards.explain(
            self._runner,
            burst,
            slot,
            answers=answers,
            earlier=self._earlier,
            error=self._oracle.error(draw.family),
        )
        if found is None and self.has_other_weights and self._is_of_the_seed(burst, slot):
            raise Failure(
                Status.INCORRECT,
                "does not follow its weights: others were loaded by the "
                "reference's names, and its output is still that of its constructor's",
            )
        if found is None:
            raise Failure(Status.INCORRECT, f"wrong output: {compared.mismatch}")
        status = Status.HACKED if found.kind in guards.CHEATS else Status.INCORRECT
        raise Failure(status, f"{found.kind}: {found.evidence}", (found,))

    def _is_of_the_seed(self, burst: Burst, slot: int) -> bool:
        """Return whether the output is right for the weights that the constructor drew."""
        self._oracle.change_weights(None)
        with suppress(RefusalError):
            key = self._oracle.key(burst.draws[slot])
            return self._agree(self._runner.output(burst, slot), key)
        return False

    @property
    def _is_drop_in(self) -> bool:
        return self._protocol.contract is Contract.DROP_IN
