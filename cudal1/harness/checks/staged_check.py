"""Check correctness in stages: on more and more inputs, of several families.

Threat: bursts of the check are the same to the worker as timed ones, so that it cannot be right in
these alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1.harness.checks.examination import Examination
from cudal1.harness.checks.progress import Phase
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.failure import Failure, NotKept
from cudal1.harness.exchange.interval import Order
from cudal1.harness.oracle.exactness import is_exact_first
from cudal1.harness.oracle.oracle import Draw, Oracle
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.shared.wire import State
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

SLOW_LOOKS = 3
"""Number of further bursts before a candidate is called too slow. A candidate that has ended may
still hold the device."""


class StagedCheck:
    """The check of one candidate's process.

    Args:
        examination: the candidate's examination; it runs and compares bursts.
        oracle: the problem's oracle.
        runner: runs bursts.
        protocol: says what the stages are.
        turns: turns of the device's judges.
    """

    def __init__(
        self,
        examination: Examination,
        oracle: Oracle,
        runner: BurstRunner,
        protocol: EvalProtocol,
        turns: Turns,
    ) -> None:
        self._examination = examination
        self._progress = examination.progress
        self._rng = examination.rng
        self._oracle = oracle
        self._runner = runner
        self._protocol = protocol
        self._turns = turns
        self._deck: list[str] = []

    def run(self, worker: Worker, stages: Sequence[int]) -> None:
        """Check a candidate, which stays correct unless this raises.

        Args:
            worker: the candidate's worker.
            stages: numbers in their order; the first of each worker says whether the candidate's
                constructor draws the reference's weights under the worker's seed.

        Raises:
            Failure: the candidate is wrong, ended or too slow.
        """
        with self._progress.stopwatch.during(Phase.CHECKING):
            for index, number in enumerate(stages):
                if index == 0:
                    self._check_first(worker, number)
                    continue
                if self._examination.is_drop_in:
                    self._examination.change_weights(worker)
                self._check(worker, number)

    def _check_first(self, worker: Worker, number: int) -> None:
        """Run a worker's first stage; a candidate that is wrong may have drawn other weights."""
        examination, compared = self._examination, self._progress.compared.copy()
        try:
            self._check(worker, number)
        except Failure as failure:
            is_ready = worker.state == State.READY and worker.is_alive()
            if not is_ready or not examination.may_lack_weights(failure):
                raise
            failed, self._progress.compared = self._progress.compared, compared
            self._progress.saw(draws_weights=False)
            examination.give_weights(worker)
            try:
                self._check(worker, number)
            except Failure:
                self._progress.compared = failed
                words = worker.display_text()
                said = "with the reference's weights loaded by name, too"
                said += f": {words}" if words else ""
                raise Failure(failure.status, f"{failure.reason} ({said})") from failure
        else:
            if self._oracle.is_seeded and examination.counts_on_draws:
                self._progress.saw(draws_weights=True)

    def _check(self, worker: Worker, number: int) -> None:
        """Run one stage. Each order comes once in it, where the slots allow.

        In the first stage calls in a chain come first.
        """
        progress, slots = self._progress, self._runner.layout.num_slots
        target = self._protocol.correctness_stages[number - 1]
        orders = self._rng.sample(self._examination.orders, len(self._examination.orders))
        if number == 1:
            orders.sort(key=[*Order].index, reverse=True)
        while (missing := target - progress.compared.num_inputs) > 0:
            # two calls at least, so that an output can be overwritten
            least = 1 if orders and orders[-1] is Order.CHAIN else min(2, missing)
            count = min(slots, max(least, missing // max(1, len(orders))))
            order = orders.pop() if orders else self._rng.choice(self._examination.orders)
            draws = [self._draw_for_check(i) for i in range(count)]
            is_exact = is_exact_first(self._oracle, number, progress.compared.num_inputs)
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
        """Refuse a candidate if every burst took too long; a few slow ones may be a busy moment.

        Beside other judges every call takes longer, so the device is asked for alone.

        Raises:
            Failure: the candidate is too slow, or failed in a further burst.
        """
        for _ in range(SLOW_LOOKS):
            if not self._is_too_slow():
                return
            draws = [self._draw_for_check(0)]
            with self._turns.timing():
                burst = self._examination.run(worker, draws)
            self._examination.compare(worker, burst, exact=False)
        if self._is_too_slow():
            said = f"{self._times_slower:.0f} times slower than the reference"
            raise Failure(Status.TIMED_OUT, said)

    def _is_too_slow(self) -> bool:
        return self._times_slower > self._protocol.slow_factor

    @property
    def _times_slower(self) -> float:
        return self._progress.call_us / self._examination.reference_call_us
