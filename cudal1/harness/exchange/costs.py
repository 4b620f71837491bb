"""Measure what bursts cost by themselves, and estimate how long the reference's calls take.

Threat: too large a cost would leave next to nothing of short calls, and their ratio could be any.
So on a CPU the cost is the smallest that was ever seen, and no candidate is flattered.

On a GPU the cost is a median. Most of it is copying inputs and the device's turns, which timed
bursts pay for in the median. With the smallest cost, the rest would stay in both times, and a
kernel that is three times as fast would seem slower. A cost that is too large does no harm there:
calls are too many, and bursts too long, for the difference to be nearly all of a burst.

On a GPU the reference's worker runs the bursts without calls: a process of their own would need
another context, which takes 0.2 s. On a CPU a process costs next to nothing. There the reference's
worker must have the same history as the candidate's, which runs no such bursts. So on a CPU another
worker runs them.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass
from statistics import median

from cudal1.harness.exchange.burst import BurstRunner, run_own
from cudal1.harness.exchange.burst_times import took_us
from cudal1.harness.exchange.interval import Order
from cudal1.harness.exchange.plan import LEAST_SLOTS
from cudal1.harness.exchange.problem_workers import ProblemWorkers
from cudal1.harness.oracle.oracle import Oracle
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.protocol import EvalProtocol

SINGLE_BURSTS, REFERENCE_BURSTS, ORIENTING_US = 3, 5, 50_000.0
"""Number of bursts of one call, of which the first may load libraries; of bursts of several calls;
and microseconds that the latter may take together. Other judges of the device wait meanwhile."""
EMPTY_BURSTS, MAX_EMPTY_BURSTS = 9, 20
EMPTY_MEMORY = 60
"""Number of the latest empty bursts of one size; their smallest or median time is subtracted."""
AGREEING, EMPTY_AGREEMENT = 3, 1.1
"""Number of the smallest times that must lie within this factor of the smallest one. Else a busy
machine has spoilt all of them."""


@dataclass
class Orientation:
    """Rough times of a problem's calls, to plan bursts and to end them."""

    reference_us: float = math.inf
    """Microseconds of one call of the reference."""
    cost_us: float = 0.0
    """Microseconds that the harness itself takes of a burst of a few calls."""
    is_of_calm: bool = False
    """True if this judge had the device alone when they were measured; beside others all takes
    longer."""


class Costs:
    """The costs of one problem's bursts.

    Args:
        oracle: draws the problem's inputs.
        runner: runs bursts.
        workers: has a CPU's worker that computes nothing.
        protocol: says how candidates are judged.
        rng: the judge's random numbers.
    """

    def __init__(
        self,
        oracle: Oracle,
        runner: BurstRunner,
        workers: ProblemWorkers,
        protocol: EvalProtocol,
        rng: random.Random,
    ) -> None:
        self._oracle = oracle
        self._runner = runner
        self._workers = workers
        self._protocol = protocol
        self._rng = rng
        self._empty_us: dict[int, deque[float]] = {}
        self.known = Orientation()

    def orient(self, reference: Worker, *, is_calm: bool) -> None:
        """Measure what calls take, unless that is known from a calm moment.

        Args:
            reference: a worker that runs the reference.
            is_calm: whether this judge has the device alone.
        """
        known = self.known
        if known.is_of_calm:
            return
        is_cuda = self._is_cuda
        count = min(LEAST_SLOTS if is_cuda else 2, self._runner.layout.num_slots)
        # on a CPU the harness's own cost stays in: it is small there
        known.cost_us = self.empty_us(count, reference) if is_cuda and is_calm else 0.0
        known.reference_us = self._call_us(reference, count, known.cost_us)
        known.is_of_calm = is_calm

    def get_ready(self) -> None:
        """Start a CPU's worker that computes nothing; that takes a while."""
        if not self._is_cuda:
            self._workers.empty()

    def empty_us(self, num_calls: int, reference: Worker) -> float:
        """Return the microseconds of a burst of so many calls without the calls.

        A machine that is too busy for a long burst on a CPU may have time for one of a single call.
        The time of that one, times the number of calls, is then an upper limit.
        """
        draw = self._oracle.draw(self._rng.getrandbits(62))
        worker = reference if self._is_cuda else self._workers.empty()
        order = Order.EMPTY if self._is_cuda else Order.CHAIN
        known = self._empty_us.setdefault(num_calls, deque(maxlen=EMPTY_MEMORY))
        for _ in range(MAX_EMPTY_BURSTS):
            burst = run_own(self._runner, worker, [draw] * num_calls, self._protocol, order)
            self._runner.release(burst)
            known.append(burst.elapsed_us)
            smallest = sorted(known)[:AGREEING]
            if len(known) >= EMPTY_BURSTS and smallest[-1] <= EMPTY_AGREEMENT * smallest[0]:
                break
        else:
            if num_calls > 1 and not self._is_cuda:
                return min(*known, num_calls * self.empty_us(1, reference))
        return median(known) if self._is_cuda else min(known)

    @property
    def _is_cuda(self) -> bool:
        return self._runner.timed_order is not Order.CHAIN

    def copying_us(self, reference: Worker, num_calls: int) -> float:
        """Return the microseconds that copying the outputs of one call adds to its time on a GPU.

        It compares the medians of a few bursts of so many calls with copies and without, on the
        same inputs.
        """
        burst_us: dict[Order, list[float]] = {Order.KEEP: [], Order.COPY: []}
        for _ in range(REFERENCE_BURSTS):
            draws = [self._oracle.draw(self._rng.getrandbits(62))] * num_calls
            for order, times in burst_us.items():
                burst = run_own(self._runner, reference, draws, self._protocol, order)
                self._runner.release(burst)
                times.append(burst.elapsed_us)
        added_us = median(burst_us[Order.COPY]) - median(burst_us[Order.KEEP])
        return max(0.0, added_us) / num_calls

    def _call_us(self, reference: Worker, num_calls: int, cost_us: float) -> float:
        """Return roughly the microseconds of one call, to plan bursts.

        The shortest of a few bursts decides; `cost_us` of each is the harness's. Slow calls, beside
        which this cost is nothing, have a burst each.
        """
        single_us = min(self._in_burst_us(reference, 1, 0.0) for _ in range(SINGLE_BURSTS))
        count = min(num_calls, int(ORIENTING_US / REFERENCE_BURSTS / single_us))
        if count <= 1:
            return single_us
        return min(self._in_burst_us(reference, count, cost_us) for _ in range(REFERENCE_BURSTS))

    def _in_burst_us(self, reference: Worker, count: int, cost_us: float) -> float:
        """Return the microseconds of one of a burst's calls; `cost_us` is the harness's."""
        draws = [self._oracle.draw(self._rng.getrandbits(62))] * count
        burst = run_own(self._runner, reference, draws, self._protocol)
        self._runner.release(burst)
        (burst_us,) = took_us([burst])
        return max(1.0, (burst_us - cost_us) / count)
