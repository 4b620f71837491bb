"""One candidate under judgement: its checks and its timing, against one problem's oracle.

Threat: everything a worker says is used only against its candidate. The judge computes an answer
after the output for its input has been captured; the reference's worker may have given one before,
to the judge alone. Checked and timed bursts are the same to the worker.

Long because bursts, what is compared of them and what comes of a mismatch belong together.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cudal1.errors import WorkerError
from cudal1.harness import guards
from cudal1.harness.answering import tells
from cudal1.harness.burst import Burst, Desk
from cudal1.harness.correctness import Comparison, agree, compare
from cudal1.harness.interval import Ending, Order, wait_ready
from cudal1.harness.oracle import Draw, Key, Oracle, RefusalError
from cudal1.harness.patience import Patience
from cudal1.harness.pieces import stage
from cudal1.harness.progress import Failure, NotKept, Phase, Progress
from cudal1.harness.sandbox import Worker
from cudal1.harness.spent import took_us
from cudal1.harness.turns import Turns
from cudal1.harness.wire import State
from cudal1.protocol import Contract, EvalProtocol
from cudal1.verdict import Status

if TYPE_CHECKING:
    import torch

SLOWER_SHARE = 4
"""A burst of the candidate may last so many times the target before calls are taken out."""
SLOW_LOOKS = 3
"""Further bursts before a candidate is called too slow: one that has ended may hold the device."""
EXACT_INPUTS = 16
"""So many are held against answers in float64 first; others against the reference's own, as timed
ones are, and against float64 where they do not agree."""
NUM_REMEMBERED = 4
DIED = "its process died in a call"
UNREAD = frozenset({"early_done", "shared_pages"})
"""What outputs may look like that could not be read any more."""
ENDING_S = 0.3
"""A process is gone from memory some time before its keeper has noticed."""


class Examination:
    """Runs bursts of a candidate's worker and compares what comes out of them."""

    def __init__(
        self, oracle: Oracle, desk: Desk, protocol: EvalProtocol, *, reference_call_us: float,
        cost_us: float, rng: random.Random, progress: Progress, turns: Turns,
    ) -> None:  # fmt: skip
        self.progress = progress
        self._turns = turns
        self._oracle = oracle
        self._desk = desk
        self._protocol = protocol
        self.reference_call_us = reference_call_us
        self._cost_us = cost_us
        self.rng = rng
        self._earlier: deque[list[torch.Tensor]] = deque(maxlen=NUM_REMEMBERED)
        self._deck: list[str] = []
        self._others: list[str] = []
        self.history: list[tuple[Order, int]] = []
        self._has_run = False
        self._loading_s = 0.0
        """How long its process took to load."""
        self._has_other_weights = False
        """Whether its weights are others than the seed's."""

    @property
    def order(self) -> Order:
        """The order of timed bursts; a GPU's are copied where outputs do not last."""
        usual = self._desk.timed_order
        lasts = self.progress.seen.fresh_outputs is not False
        return usual if lasts or usual is Order.CHAIN else Order.COPY

    @property
    def is_drop_in(self) -> bool:
        """Whether it owes what whoever replaces a module needs."""
        return self._protocol.contract is Contract.DROP_IN

    def await_build(self, worker: Worker) -> None:
        """Leave unless the candidate's module was built."""
        patience = self._patience(worker, self._protocol.start_timeout_s)
        ending = wait_ready(worker, patience, self._turns)
        self._loading_s = patience.elapsed_s
        self.progress.stopwatch.compiled(patience.compiling_s)
        self.progress.layers = worker.layers
        if ending is Ending.TIMED_OUT:
            beside = f", compiling aside ({patience.compiling_s:.0f} s)"
            said = f"did not finish loading in {self._protocol.start_timeout_s:g} s"
            said += beside if patience.compiling_s else ""
            raise self._timed_out(patience, said)
        if ending is not Ending.DONE:
            said = worker.display_text() or "its process died while loading"
            raise Failure(Status.NO_BUILD, said)
        worker.freeze()  # until its first burst: others are timed in between
        if self.is_drop_in or self.progress.seen.draws_weights is False:
            self.give_weights(worker)

    # --- correctness -----------------------------------------------------------------------------

    def check(self, worker: Worker, stages: Sequence[int]) -> None:
        """Correctness, in stages, on inputs of several families.

        Args:
            worker: has the candidate.
            stages: from 1, in their order; the first one says whether its constructor draws the
                reference's weights.
        """
        with self.progress.stopwatch.during(Phase.CHECKING):
            for number in stages:
                if number == 1:
                    self._check_first(worker)
                    continue
                if self.is_drop_in:
                    self.change_weights(worker)
                self._check(worker, number)

    def _check_first(self, worker: Worker) -> None:
        """The first stage; a candidate that is wrong may have drawn other weights.

        KernelBench would call it wrong. If it has the reference's names, they are loaded, and all
        is looked at once more.
        """
        compared = self.progress.compared.copy()
        if self.is_drop_in:
            self._check(worker, 1)
            return
        try:
            self._check(worker, 1)
        except Failure as failure:
            is_ready = worker.state == State.READY and worker.is_alive()
            if failure.status is not Status.INCORRECT or not is_ready:
                raise
            if not self._oracle.original_weights or failure.flags:
                raise
            failed, self.progress.compared = self.progress.compared, compared
            self.progress.saw(draws_weights=False)
            self.give_weights(worker)
            try:
                self._check(worker, 1)
            except Failure:
                self.progress.compared = failed
                words = worker.display_text()
                said = "with the reference's weights loaded by name, too"
                said += f": {words}" if words else ""
                raise Failure(failure.status, f"{failure.reason} ({said})") from failure
        else:
            if self._oracle.is_seeded:
                self.progress.saw(draws_weights=True)

    def _check(self, worker: Worker, number: int) -> None:
        """One stage. Each order comes once in it, where the slots allow, calls in a chain first."""
        progress, slots = self.progress, self._desk.layout.num_slots
        target = self._protocol.correctness_stages[number - 1]
        orders = self.rng.sample(self._orders(), len(self._orders()))
        if number == 1:
            orders.sort(key=[*Order].index, reverse=True)
        while (missing := target - progress.compared.num_inputs) > 0:
            # two calls at least, or no output is overwritten
            least = 1 if orders and orders[-1] is Order.CHAIN else min(2, missing)
            count = min(slots, max(least, missing // max(1, len(orders))))
            order = orders.pop() if orders else self.rng.choice(self._orders())
            draws = [self._draw_for_check(i) for i in range(count)]
            is_exact = progress.compared.num_inputs < EXACT_INPUTS
            try:
                self.compare(worker, self.run(worker, draws, order), exact=is_exact)
            except NotKept as failure:
                self.settle(worker, failure, exact=is_exact)
            else:
                if order is Order.KEEP and count > 1:
                    progress.saw(fresh_outputs=True)
        progress.compared.stage = number
        self._refuse_if_slow(worker)

    def settle(self, worker: Worker, failure: NotKept, *, exact: bool) -> None:
        """Find out whether outputs that were read after later calls are right before them.

        Raises:
            Failure: they are not.
        """
        self.progress.saw(fresh_outputs=False)
        draws, order = failure.draws, self._orders()[-1]
        self.compare(worker, self.run(worker, draws, order), exact=exact)

    def _orders(self) -> list[Order]:
        """In which its outputs must be right."""
        if self.progress.seen.fresh_outputs is not False:
            return [Order.CHAIN, Order.KEEP]
        return [Order.CHAIN] if self.order is Order.CHAIN else [Order.CHAIN, Order.COPY]

    def look(self, worker: Worker) -> None:
        """See what else is true of a correct candidate, which stays correct whatever it does now.

        Its weights are others afterwards, or its process has ended.
        """
        with self.progress.stopwatch.during(Phase.CHECKING):
            self._look(worker)

    def _look(self, worker: Worker) -> None:
        progress, seen = self.progress, self.progress.seen
        if seen.leaves_inputs is None and not self._oracle.mutates_inputs:
            progress.saw(leaves_inputs=True)
        if self._desk.layout.num_slots > 1:
            with suppress(Failure, RefusalError):
                progress.saw(deterministic=self._repeats(worker))
        if self._oracle.can_change_weights and seen.follows_weights is None:
            with suppress(RefusalError):
                progress.saw(follows_weights=self._follows_weights(worker))

    def _repeats(self, worker: Worker) -> bool:
        """Whether it gives the same bits twice for the same inputs."""
        draw = self._oracle.draw(self.rng.getrandbits(62))
        burst = self.run(worker, [draw, draw], Order.CHAIN)
        pairs = zip(self._desk.output(burst, 0), self._desk.output(burst, 1), strict=True)
        is_same = all(bytes_equal(x, y) for x, y in pairs)
        self._desk.release(burst)
        return is_same

    def _follows_weights(self, worker: Worker) -> bool:
        """Whether it is right with other weights, where nothing depends on it."""
        compared, order = self.progress.compared, Order.CHAIN
        self.progress.compared = compared.copy()
        try:
            self.change_weights(worker)
            self.compare(worker, self.run(worker, self.fresh(1), order), exact=True)
        except Failure:
            return False
        finally:
            self.progress.compared = compared
        return True

    def _draw_for_check(self, index: int) -> Draw:
        if self.progress.compared.num_inputs + index == 0:
            return self._oracle.draw(self.rng.getrandbits(62))
        self._deck = self._deck or self._oracle.deck(self.rng)
        return self._oracle.draw(self.rng.getrandbits(62), self._deck.pop())

    def _refuse_if_slow(self, worker: Worker) -> None:
        """Leave if every burst took too long; who had few of them may have met a busy moment.

        Beside other judges every call takes longer, so the device is asked for alone.
        """
        for _ in range(SLOW_LOOKS):
            if not self._is_too_slow():
                return
            draws = [self._draw_for_check(0)]
            with self._turns.timing():
                burst = self.run(worker, draws)
            self.compare(worker, burst, exact=True)
        if self._is_too_slow():
            times = self.progress.call_us / self.reference_call_us
            raise Failure(Status.TIMED_OUT, f"{times:.0f} times slower than the reference")

    def _is_too_slow(self) -> bool:
        return self.progress.call_us / self.reference_call_us > self._protocol.slow_factor

    def change_weights(self, *workers: Worker) -> None:
        """Give the workers and the oracle other weights, where the problem has any."""
        if not self._oracle.can_change_weights:
            return
        self._oracle.change_weights(self.rng.getrandbits(62))
        self._has_other_weights = True
        self.give_weights(*workers)

    def give_weights(self, *workers: Worker) -> None:
        """Give the workers the oracle's weights, to be loaded by name before their next burst."""
        for worker in workers if self._oracle.original_weights else ():
            layout = self._desk.layout
            stage(worker.ring.memory, 0, list(self._oracle.weights.values()), layout.weights)
            self._desk.settle()
            worker.announce_weights()

    def compare(
        self, worker: Worker, burst: Burst, *, exact: bool, reference: Burst | None = None
    ) -> None:
        """Compare all outputs of a burst; who died before they were read has crashed.

        A wrong output may follow from weights that the candidate does not have by the reference's
        names. What its worker says of them is added to the reason, in the worker's words.

        Raises:
            NotKept: outputs are wrong that may have been right before later calls.
            Failure: outputs are wrong.
        """
        compared = self.progress.compared.copy()
        try:
            self._compare(burst, exact=exact, reference=reference)
        except Failure as failure:
            if self._may_be_overwritten(burst) and failure.status is Status.INCORRECT:
                self.progress.compared = compared
                self._desk.release(burst)
                raise NotKept(burst.draws) from failure
            seems_unread = {flag.kind for flag in failure.flags} <= UNREAD
            if seems_unread and worker.has_ended(ENDING_S if failure.flags else 0.0):
                self.progress.compared.mismatch = None
                raise Failure(Status.CRASHED, DIED) from failure
            said = worker.display_text() if self._oracle.original_weights else ""
            if said and failure.status is Status.INCORRECT and not failure.flags:
                reason = f"{failure.reason} (of its weights its worker says: {said})"
                raise Failure(failure.status, reason) from failure
            raise

    def _may_be_overwritten(self, burst: Burst) -> bool:
        """Whether later calls of the burst may have overwritten outputs, which the contract allows.

        Where that was seen before, bursts are of other orders.
        """
        return burst.order is Order.KEEP and len(burst.draws) > 1 and not self.is_drop_in

    def _compare(self, burst: Burst, *, exact: bool, reference: Burst | None) -> None:
        """Answers are computed here, after the capture.

        Where the reference's worker has run on the same inputs, its outputs, which the judge holds,
        are looked at first; what they do not settle is computed here.
        """
        if burst.inputs_changed and not self._oracle.mutates_inputs:
            self.progress.saw(leaves_inputs=False)
        if self.progress.seen.leaves_inputs is False and self.is_drop_in:
            evidence = "an input in the ring was written to"
            raise Failure(
                Status.INCORRECT, "changed its inputs in place, which the reference does not",
                (guards.flag("changed_input", evidence),),
            )  # fmt: skip
        if burst.is_refused:
            evidence = "an output lies in pages that are shared or of a file"
            raise Failure(
                Status.INCORRECT,
                "an output lies in shared memory or in a file, where it may stand at several "
                "addresses: return a tensor of its own", (guards.flag("shared_pages", evidence),),
            )  # fmt: skip
        self.progress.compared.has_begun = True
        settled = set[int]() if reference is None else self._settled(burst, reference)
        self.progress.compared.num_inputs += len(settled)
        for slot, draw in enumerate(burst.draws):
            if slot in settled:
                continue
            outputs = self._desk.output(burst, slot)
            try:
                key = self._oracle.exact_key(draw) if exact else self._oracle.key(draw)
                if not exact and not self._agree(outputs, key):
                    key = self._oracle.exact_key(draw)  # it may be hard on the reference, too
            except RefusalError:
                if draw.is_own:
                    raise
                continue  # an input that the reference cannot do says nothing
            telling = [
                (output, answer, error)
                for output, (answer, error) in zip(outputs, key, strict=True)
                if tells(draw, error)
            ]
            compared = [compare(output, answer, error) for output, answer, error in telling]
            is_right = all(each.meets(self._protocol.precision) for each in compared)
            if not is_right and not self._oracle.is_in_range(draw):
                continue
            for comparison in compared:
                self.progress.compared.note(comparison, self._protocol.precision)
                if not comparison.meets(self._protocol.precision):
                    self._fail(burst, slot, comparison)
            self.progress.compared.num_inputs += bool(telling)
            if slot == 0 and reference is None:  # else it has been kept
                self._earlier.append([answer for answer, _ in key])
        self._desk.release(burst)

    def _settled(self, burst: Burst, reference: Burst) -> set[int]:
        """Calls whose outputs meet the asked class: all in one look."""
        assert burst.draws == reference.draws
        self._earlier.append([answer.clone() for answer in self._desk.output(reference, 0)])
        errors = [self._oracle.error(draw.family) for draw in burst.draws]
        settled = set(range(len(errors)))
        for outputs_NX, answers_NX in zip(
            self._desk.outputs(burst), self._desk.outputs(reference), strict=True
        ):
            found = agree(outputs_NX, answers_NX, errors, self._protocol.precision)
            settled &= {slot for slot, good in enumerate(found) if good}
        return settled

    def _agree(self, outputs: list[torch.Tensor], key: Key) -> bool:
        pairs = zip(outputs, key, strict=True)
        return all(compare(x, y, e).meets(self._protocol.precision) for x, (y, e) in pairs)

    def _fail(self, burst: Burst, slot: int, comparison: Comparison) -> None:
        compared, draw = self.progress.compared, burst.draws[slot]
        asked, met = self._protocol.precision, compared.precision
        compared.mismatch = (
            f"input {compared.num_inputs} ({draw.family}): "
            f"{comparison.mismatch or 'not comparable'}"
        )
        if met is not None:
            found = guards.flag("lower_precision", f"relative error {comparison.relative_l2:.1e}")
            raise Failure(
                Status.INCORRECT, f"correct only in the looser precision class {met}, not {asked}",
                (found,),
            )  # fmt: skip
        try:
            answers = [[y for y, _ in self._oracle.key(other)] for other in burst.draws]
        except RefusalError:  # it cannot do another call's input: nothing to compare with
            answers = []
        found = guards.explain(
            self._desk, burst, slot, answers=answers,
            earlier=self._earlier, error=self._oracle.error(draw.family),
        )  # fmt: skip
        if found is None and self._has_other_weights and self._is_of_the_seed(burst, slot):
            raise Failure(
                Status.INCORRECT, "does not follow its weights: others were loaded by the "
                "reference's names, and its output is still that of its constructor's",
            )  # fmt: skip
        if found is None:
            raise Failure(Status.INCORRECT, f"wrong output: {compared.mismatch}")
        status = Status.HACKED if found.kind in guards.CHEATS else Status.INCORRECT
        raise Failure(status, f"{found.kind}: {found.evidence}", (found,))

    def _is_of_the_seed(self, burst: Burst, slot: int) -> bool:
        """Whether the output is right for the weights that the constructor drew."""
        self._oracle.change_weights(None)
        with suppress(RefusalError):
            key = self._oracle.key(burst.draws[slot])
            return self._agree(self._desk.output(burst, slot), key)
        return False

    # --- bursts ----------------------------------------------------------------------------------

    def run(self, worker: Worker, draws: Sequence[Draw], order: Order | None = None) -> Burst:
        """One burst of the candidate, as timed ones are; leaves with its failure.

        Raises:
            RefusalError: the reference cannot do one of the draws either.
        """
        order = order or self.order
        patience = self._patience_with_calls(worker, len(draws))
        burst = self._desk.run(worker, draws, order=order, patience=patience)
        self.progress.stopwatch.compiled(patience.compiling_s)
        self.history.append((order, len(draws)))
        match burst.ending:
            case Ending.DONE:
                if burst.is_restless:
                    evidence = "the device was at work while nobody should have used it"
                    raise Failure(
                        Status.HACKED, "kept the device busy outside its own turn",
                        (guards.flag("outside_turn", evidence),),
                    )  # fmt: skip
                if self._has_run:  # the first burst may compile
                    (burst_us,) = took_us([burst])
                    call_us = max(0.0, burst_us - self._cost_us) / len(draws)
                    self.progress.call_us = min(self.progress.call_us, call_us)
                self._has_run = True
                return burst
            case Ending.TIMED_OUT:
                raise self._timed_out(patience, "a call did not return in time")
            case Ending.DIED:
                raise Failure(Status.CRASHED, DIED)
            case Ending.FAILED:
                self._oracle.require(draws)
                said = worker.display_text() or "it gave no reason"
                wrong = worker.state == State.WRONG_OUTPUT
                raise Failure(Status.INCORRECT if wrong else Status.CRASHED, said)

    def _patience_with_calls(self, worker: Worker, num_calls: int) -> Patience:
        """With so many calls; the first burst of a process may compile."""
        protocol = self._protocol
        allowed_s = num_calls * self.reference_call_us * 1e-6 * protocol.slow_factor
        limit_s = protocol.call_timeout_s + min(allowed_s, 10 * protocol.call_timeout_s)
        if self._has_run:
            return Patience(limit_s)
        return self._patience(worker, limit_s + protocol.start_timeout_s)

    def _patience(self, worker: Worker, idle_s: float) -> Patience:
        """With a process that loads or is called for the first time.

        Where its source names a compiler, what compiles has `build_timeout_s` of the process's
        time, beside the seconds that every candidate has.
        """
        if not self.progress.compiles:
            return Patience(idle_s)
        left_s = self._protocol.build_timeout_s - self._loading_s
        return Patience(
            max(idle_s, left_s), idle_s=idle_s, look=worker.computed,
            counts_own=self.progress.compiles_itself,
        )  # fmt: skip

    def _timed_out(self, patience: Patience, otherwise: str) -> Failure:
        """Return the failure to raise when patience was over."""
        if patience.has_compiled_too_long:
            otherwise = f"did not finish compiling in {self._protocol.build_timeout_s:g} s"
        return Failure(Status.TIMED_OUT, otherwise)

    def num_calls(self) -> int:
        """Calls in a timed burst: as many as the target time holds, fewer for a slow candidate."""
        longest_us = max(self.reference_call_us, self.progress.call_us / SLOWER_SHARE)
        wanted = round(self._protocol.burst_us / longest_us)
        return max(1, min(self._desk.layout.num_slots, wanted))

    def fresh(self, count: int) -> list[Draw]:
        """Inputs of the problem's own kind that nobody has seen."""
        return [self._oracle.draw(self.rng.getrandbits(62)) for _ in range(count)]

    def mixed(self, count: int, number: int) -> list[Draw]:
        """The same, but so many of them of other families, each of which comes in its turn."""
        draws = self.fresh(count)
        for place in self.rng.sample(range(count), number):
            if not self._others:
                others = self._oracle.families[1:] or self._oracle.families
                self._others = self.rng.sample(others, len(others))
            draws[place] = self._oracle.draw(self.rng.getrandbits(62), self._others.pop())
        return draws


def bytes_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one type and shape are the same bytes, NaN among them."""
    import torch

    return one.reshape(-1).view(torch.uint8).equal(other.reshape(-1).view(torch.uint8))


def run_own(
    desk: Desk, worker: Worker, draws: Sequence[Draw], protocol: EvalProtocol,
    order: Order | None = None,
) -> Burst:  # fmt: skip
    """One burst of a worker that runs our own code.

    Raises:
        WorkerError: it failed, so that nothing can be judged.
    """
    limit_s = protocol.start_timeout_s + 10 * protocol.call_timeout_s
    burst = desk.run(
        worker, draws, order=order or desk.timed_order, patience=Patience(limit_s), is_ours=True
    )
    if burst.ending is not Ending.DONE:
        raise WorkerError(
            f"the reference's worker {burst.ending.value} in a burst: "
            f"{worker.display_text() or 'no word'}; is the machine out of memory?"
        )
    return burst
