"""Examine one candidate: run bursts of its process, draw their inputs, and set its weights.

Threat: everything a worker says is used only against its candidate. Checked and timed bursts are
the same to the worker.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from cudal1.harness.checks import guards
from cudal1.harness.checks.output_check import OutputCheck
from cudal1.harness.checks.progress import Progress
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange.burst import Burst, BurstRunner
from cudal1.harness.exchange.burst_times import took_us
from cudal1.harness.exchange.costs import Orientation
from cudal1.harness.exchange.failure import Failure, NotKept
from cudal1.harness.exchange.interval import Ending, Order, wait_ready
from cudal1.harness.exchange.pieces import stage
from cudal1.harness.oracle.oracle import Draw, Oracle
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.shared.wire import State
from cudal1.protocol import Contract, EvalProtocol
from cudal1.verdict import Status

SLOWER_SHARE = 4
"""Multiple of the target time that a burst of the candidate may last before calls are taken out."""
DIED = "its process died in a call"
UNREAD = frozenset({"early_done", "shared_pages"})
"""Kinds of flags that outputs may get because their process died before they were read."""
ENDING_S = 0.3
"""Seconds within which a keeper notices that its process has ended. The process is gone from memory
some time before."""


class Examination:
    """The examination of one candidate: it runs bursts of a worker and compares their outputs."""

    def __init__(
        self,
        oracle: Oracle,
        runner: BurstRunner,
        protocol: EvalProtocol,
        *,
        costs: Orientation,
        rng: random.Random,
        progress: Progress,
        turns: Turns,
    ) -> None:
        self.progress = progress
        self._turns = turns
        self._oracle = oracle
        self._runner = runner
        self._protocol = protocol
        self._costs = costs
        self.rng = rng
        self._outputs = OutputCheck(oracle, runner, protocol, progress)
        self._others: list[str] = []
        self.history: list[tuple[Order, int]] = []
        self._has_run = False
        self._loading_s = 0.0
        """Seconds that the candidate's process took to load."""

    def another(self) -> Examination:
        """Return the examination of another process of the candidate, with the same progress."""
        return Examination(
            self._oracle,
            self._runner,
            self._protocol,
            costs=self._costs,
            rng=self.rng,
            progress=self.progress,
            turns=self._turns,
        )

    @property
    def reference_call_us(self) -> float:
        """The rough time of a call of the reference, in µs."""
        return self._costs.reference_us

    @property
    def order(self) -> Order:
        """The order of timed bursts; on a GPU it is `COPY` where outputs do not last."""
        usual = self._runner.timed_order
        lasts = self.progress.seen.fresh_outputs is not False
        return usual if lasts or usual is Order.CHAIN else Order.COPY

    @property
    def is_drop_in(self) -> bool:
        """True under `drop_in`: the candidate owes what a replacement of a module needs."""
        return self._protocol.contract is Contract.DROP_IN

    def await_build(self, worker: Worker) -> None:
        """Wait until the candidate's module is built.

        Raises:
            Failure: the module was not built.
        """
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
        worker.freeze()  # until its first burst: other workers are timed in between
        if self.is_drop_in or self.progress.seen.draws_weights is False:
            self.give_weights(worker)

    # --- weights ---------------------------------------------------------------------------------

    def change_weights(self, *workers: Worker) -> None:
        """Give the workers and the oracle other weights, where the problem has any."""
        if not self._oracle.can_change_weights:
            return
        self._oracle.change_weights(self.rng.getrandbits(62))
        self._outputs.has_other_weights = True
        self.give_weights(*workers)

    @property
    def counts_on_draws(self) -> bool:
        """True if the candidate's constructor must draw the weights, as it has done so far."""
        return not self.is_drop_in and self.progress.seen.draws_weights is not False

    def may_lack_weights(self, failure: Failure) -> bool:
        """Return whether a candidate may be wrong because its constructor drew other weights.

        KernelBench would call it wrong. If it has the reference's names, it is given the
        reference's weights, and all is looked at once more. Under one seed a constructor may draw
        what the reference's does, and under another seed not: PyTorch draws in bfloat16 the least
        number where rounding gives the greatest, so that one weight in a thousand has the other
        sign.
        """
        is_wrong = failure.status is Status.INCORRECT and not failure.flags
        return is_wrong and self.counts_on_draws and bool(self._oracle.original_weights)

    def give_weights(self, *workers: Worker) -> None:
        """Give the workers the oracle's weights, to be loaded by name before their next burst."""
        for worker in workers if self._oracle.original_weights else ():
            layout = self._runner.layout
            stage(worker.ring.memory, 0, list(self._oracle.weights.values()), layout.weights)
            self._runner.settle()
            worker.announce_weights()

    # --- outputs ---------------------------------------------------------------------------------

    def compare(
        self, worker: Worker, burst: Burst, *, exact: bool, reference: Burst | None = None
    ) -> None:
        """Compare all outputs of a burst; a worker that died before they were read has crashed.

        A wrong output may follow from weights that the candidate does not have by the reference's
        names. What its worker says of its weights is added to the reason, in the worker's words.

        Raises:
            NotKept: outputs are wrong that may have been right before later calls.
            Failure: outputs are wrong.
        """
        compared = self.progress.compared.copy()
        try:
            self._outputs.compare(burst, exact=exact, reference=reference)
        except Failure as failure:
            if self._may_be_overwritten(burst) and failure.status is Status.INCORRECT:
                self.progress.compared = compared
                self._runner.release(burst)
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
        """Return whether later calls of the burst may have overwritten outputs.

        The contract allows that unless it is `drop_in`. Once that was seen, bursts are of other
        orders.
        """
        return burst.order is Order.KEEP and len(burst.draws) > 1 and not self.is_drop_in

    def settle(self, worker: Worker, failure: NotKept, *, exact: bool) -> None:
        """Find out whether outputs that were read after later calls are right before them.

        Raises:
            Failure: they are not.
        """
        self.progress.saw(fresh_outputs=False)
        draws, order = failure.draws, self.orders[-1]
        self.compare(worker, self.run(worker, draws, order), exact=exact)

    @property
    def orders(self) -> list[Order]:
        """The orders of bursts in which the candidate's outputs must be right."""
        if self.progress.seen.fresh_outputs is not False:
            return [Order.CHAIN, Order.KEEP]
        return [Order.CHAIN] if self.order is Order.CHAIN else [Order.CHAIN, Order.COPY]

    # --- bursts ----------------------------------------------------------------------------------

    def run(self, worker: Worker, draws: Sequence[Draw], order: Order | None = None) -> Burst:
        """Run one burst of the candidate, as timed bursts are run.

        Raises:
            Failure: the burst failed, or the device was at work outside the candidate's turn.
            RefusalError: the reference cannot do one of the draws either.
        """
        order = order or self.order
        patience = self._patience_with_calls(worker, len(draws))
        burst = self._runner.run(worker, draws, order=order, patience=patience)
        self.progress.stopwatch.compiled(patience.compiling_s)
        self.history.append((order, len(draws)))
        match burst.ending:
            case Ending.DONE:
                if burst.is_restless:
                    evidence = "the device was at work while nobody should have used it"
                    raise Failure(
                        Status.HACKED,
                        "kept the device busy outside its own turn",
                        (guards.flag("outside_turn", evidence),),
                    )
                if self._has_run:  # the first burst may compile
                    (burst_us,) = took_us([burst])
                    call_us = max(0.0, burst_us - self._costs.cost_us) / len(draws)
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
        """Return the patience with so many calls; the first burst of a process may compile."""
        protocol = self._protocol
        allowed_s = num_calls * self.reference_call_us * 1e-6 * protocol.slow_factor
        limit_s = protocol.call_timeout_s + min(allowed_s, 10 * protocol.call_timeout_s)
        if self._has_run:
            return Patience(limit_s)
        return self._patience(worker, limit_s + protocol.start_timeout_s)

    def _patience(self, worker: Worker, idle_s: float) -> Patience:
        """Return the patience with a process that loads or is called for the first time.

        Where the candidate's source names a compiler, compiling has `build_timeout_s` of the
        process's time, beside the seconds that every candidate has.
        """
        if not self.progress.compiles:
            return Patience(idle_s)
        left_s = self._protocol.build_timeout_s - self._loading_s
        return Patience(
            max(idle_s, left_s),
            idle_s=idle_s,
            look=worker.computed,
            counts_own=self.progress.compiles_itself,
        )

    def _timed_out(self, patience: Patience, otherwise: str) -> Failure:
        """Return the failure to raise once patience is over."""
        if patience.has_compiled_too_long:
            otherwise = f"did not finish compiling in {self._protocol.build_timeout_s:g} s"
        return Failure(Status.TIMED_OUT, otherwise)

    def num_calls(self, *, times: int = 1) -> int:
        """Return the number of calls in a timed burst.

        They are as many as the target time holds so many times, and fewer for a slow candidate.
        """
        longest_us = max(self.reference_call_us, self.progress.call_us / SLOWER_SHARE)
        wanted = round(times * self._protocol.burst_us / longest_us)
        return max(1, min(self._runner.layout.num_slots, wanted))

    def fresh(self, count: int) -> list[Draw]:
        """Draw inputs of the problem's own kind that no process has seen."""
        return [self._oracle.draw(self.rng.getrandbits(62)) for _ in range(count)]

    def mixed(self, count: int, number: int) -> list[Draw]:
        """Draw new inputs, `number` of them of other families, each of which comes in its turn."""
        draws = self.fresh(count)
        for place in self.rng.sample(range(count), number):
            if not self._others:
                others = self._oracle.families[1:] or self._oracle.families
                self._others = self.rng.sample(others, len(others))
            draws[place] = self._oracle.draw(self.rng.getrandbits(62), self._others.pop())
        return draws
