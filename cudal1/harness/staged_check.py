"""The check of correctness, in stages: on more and more inputs, of several families.

Threat: bursts of the check are the same to the worker as timed ones, so that it cannot be right in
these alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1.harness.burst import Desk
from cudal1.harness.examination import Examination
from cudal1.harness.interval import Order
from cudal1.harness.oracle import Draw, Oracle
from cudal1.harness.progress import Failure, NotKept, Phase
from cudal1.harness.sandbox import Worker
from cudal1.harness.turns import Turns
from cudal1.harness.wire import State
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

SLOW_LOOKS = 3
"""Further bursts before a candidate is called too slow: one that has ended may hold the device."""
EXACT_INPUTS = 16
"""So many are held against answers in float64 first; others against the reference's own, as timed
ones are, and against float64 where they do not agree."""


class StagedCheck:
    """Checks one candidate's process.

    Args:
        examination: of the candidate; runs and compares its bursts.
        oracle: of the problem.
        desk: where bursts are run.
        protocol: says what the stages are.
        turns: of judges of the device.
    """

    def __init__(
        self,
        examination: Examination,
        oracle: Oracle,
        desk: Desk,
        protocol: EvalProtocol,
        turns: Turns,
    ) -> None:
        self._examination = examination
        self._progress = examination.progress
        self._rng = examination.rng
        self._oracle = oracle
        self._desk = desk
        self._protocol = protocol
        self._turns = turns
        self._deck: list[str] = []

    def run(self, worker: Worker, stages: Sequence[int]) -> None:
        """Check a candidate, which stays correct unless this raises.

        Args:
            worker: has the candidate.
            stages: from 1, in their order; the first one says whether its constructor draws the
                reference's weights.

        Raises:
            Failure: it is wrong, ended or too slow.
        """
        with self._progress.stopwatch.during(Phase.CHECKING):
            for number in stages:
                if number == 1:
                    self._check_first(worker)
                    continue
                if self._examination.is_drop_in:
                    self._examination.change_weights(worker)
                self._check(worker, number)

    def _check_first(self, worker: Worker) -> None:
        """The first stage; a candidate that is wrong may have drawn other weights.

        KernelBench would call it wrong. If it has the reference's names, they are loaded, and all
        is looked at once more.
        """
        compared = self._progress.compared.copy()
        if self._examination.is_drop_in:
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
            failed, self._progress.compared = self._progress.compared, compared
            self._progress.saw(draws_weights=False)
            self._examination.give_weights(worker)
            try:
                self._check(worker, 1)
            except Failure:
                self._progress.compared = failed
                words = worker.display_text()
                said = "with the reference's weights loaded by name, too"
                said += f": {words}" if words else ""
                raise Failure(failure.status, f"{failure.reason} ({said})") from failure
        else:
            if self._oracle.is_seeded:
                self._progress.saw(draws_weights=True)

    def _check(self, worker: Worker, number: int) -> None:
        """One stage. Each order comes once in it, where the slots allow, calls in a chain first."""
        progress, slots = self._progress, self._desk.layout.num_slots
        target = self._protocol.correctness_stages[number - 1]
        orders = self._rng.sample(self._examination.orders, len(self._examination.orders))
        if number == 1:
            orders.sort(key=[*Order].index, reverse=True)
        while (missing := target - progress.compared.num_inputs) > 0:
            # two calls at least, or no output is overwritten
            least = 1 if orders and orders[-1] is Order.CHAIN else min(2, missing)
            count = min(slots, max(least, missing // max(1, len(orders))))
            order = orders.pop() if orders else self._rng.choice(self._examination.orders)
            draws = [self._draw_for_check(i) for i in range(count)]
            is_exact = progress.compared.num_inputs < EXACT_INPUTS
            try:
                self._compare(worker, draws, order, exact=is_exact)
            except NotKept as failure:
                self._examination.settle(worker, failure, exact=is_exact)
            else:
                if order is Order.KEEP and count > 1:
                    progress.saw(fresh_outputs=True)
        progress.compared.stage = number
        self._refuse_if_slow(worker)

    def _compare(self, worker: Worker, draws: Sequence[Draw], order: Order, *, exact: bool) -> None:
        """Run a burst and compare what comes out."""
        burst = self._examination.run(worker, draws, order)
        self._examination.compare(worker, burst, exact=exact)

    def _draw_for_check(self, index: int) -> Draw:
        if self._progress.compared.num_inputs + index == 0:
            return self._oracle.draw(self._rng.getrandbits(62))
        self._deck = self._deck or self._oracle.deck(self._rng)
        return self._oracle.draw(self._rng.getrandbits(62), self._deck.pop())

    def _refuse_if_slow(self, worker: Worker) -> None:
        """Leave if every burst took too long; a few slow ones may be a busy moment.

        Beside other judges every call takes longer, so the device is asked for alone.
        """
        for _ in range(SLOW_LOOKS):
            if not self._is_too_slow():
                return
            draws = [self._draw_for_check(0)]
            with self._turns.timing():
                burst = self._examination.run(worker, draws)
            self._examination.compare(worker, burst, exact=True)
        if self._is_too_slow():
            said = f"{self._times_slower:.0f} times slower than the reference"
            raise Failure(Status.TIMED_OUT, said)

    def _is_too_slow(self) -> bool:
        return self._times_slower > self._protocol.slow_factor

    @property
    def _times_slower(self) -> float:
        return self._progress.call_us / self._examination.reference_call_us
