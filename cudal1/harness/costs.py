"""What bursts cost by themselves, and about how long the reference's calls take.

Threat: too large a cost would leave next to nothing of short calls, and their ratio could be any.
So on a CPU it is the smallest that was ever seen, and nobody is flattered. On a GPU most of it is
copying inputs and the device's turns, which timed bursts pay for in the median: with the smallest,
what those take longer stays in both times, and a kernel that is three times as fast seems slower.
Calls are too many there, and bursts too long, for the difference to be nearly all of a burst.
"""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import dataclass
from statistics import median

from cudal1.harness.burst import Desk, run_own
from cudal1.harness.crew import Crew
from cudal1.harness.interval import Order
from cudal1.harness.oracle import Oracle
from cudal1.harness.plan import LEAST_SLOTS
from cudal1.harness.sandbox import Worker
from cudal1.harness.spent import took_us
from cudal1.protocol import EvalProtocol

REFERENCE_BURSTS = 5
EMPTY_BURSTS, MAX_EMPTY_BURSTS = 9, 20
EMPTY_MEMORY = 60
"""Latest empty bursts of one size, whose smallest or median time is subtracted."""
AGREEING, EMPTY_AGREEMENT = 3, 1.1
"""So many of the smallest must lie this close: else a busy machine has spoilt them all."""


@dataclass
class Orientation:
    """About what a problem's calls take, to plan bursts and to end them."""

    reference_us: float = math.inf
    """A call of the reference."""
    cost_us: float = 0.0
    """What the harness itself takes of a burst of a few calls."""
    is_of_calm: bool = False
    """Whether nobody else used the device when that was found; beside others all takes longer."""


class Costs:
    """Of one problem.

    Args:
        oracle: draws its inputs.
        desk: where bursts are run.
        crew: has the worker that computes nothing.
        protocol: how.
        rng: the judge's.
    """

    def __init__(
        self, oracle: Oracle, desk: Desk, crew: Crew, protocol: EvalProtocol, rng: random.Random
    ) -> None:
        self._oracle = oracle
        self._desk = desk
        self._crew = crew
        self._protocol = protocol
        self._rng = rng
        self._empty_us: dict[int, deque[float]] = {}
        self.known = Orientation()

    def orient(self, reference: Worker, *, is_calm: bool) -> None:
        """Find out what calls take, unless that is known from a calm moment.

        Args:
            reference: a worker that runs it.
            is_calm: whether the device is this judge's alone.
        """
        known = self.known
        if known.is_of_calm:
            return
        is_cuda = self._desk.timed_order is not Order.CHAIN
        count = min(LEAST_SLOTS if is_cuda else 2, self._desk.layout.num_slots)
        # on a CPU with the harness's own cost, which is small there
        known.cost_us = self.empty_us(count) if is_cuda and is_calm else 0.0
        known.reference_us = self._call_us(reference, count, known.cost_us)
        known.is_of_calm = is_calm

    def empty_us(self, num_calls: int) -> float:
        """Of a burst of so many calls, without the calls.

        A machine that is too busy for a long burst on a CPU may have time for one of a single call.
        """
        draw = self._oracle.draw(self._rng.getrandbits(62))
        empty = self._crew.empty()
        known = self._empty_us.setdefault(num_calls, deque(maxlen=EMPTY_MEMORY))
        for _ in range(MAX_EMPTY_BURSTS):
            burst = run_own(self._desk, empty, [draw] * num_calls, self._protocol)
            self._desk.release(burst)
            known.append(burst.elapsed_us)
            smallest = sorted(known)[:AGREEING]
            if len(known) >= EMPTY_BURSTS and smallest[-1] <= EMPTY_AGREEMENT * smallest[0]:
                break
        else:
            if num_calls > 1 and self._desk.timed_order is Order.CHAIN:
                return min(*known, num_calls * self.empty_us(1))
        return min(known) if self._desk.timed_order is Order.CHAIN else median(known)

    def copying_us(self, reference: Worker, num_calls: int) -> float:
        """Return what copying the outputs of one call adds to its time on a GPU.

        In the median of a few bursts of so many calls, with copies and without, on the same inputs.
        """
        burst_us: dict[Order, list[float]] = {Order.KEEP: [], Order.COPY: []}
        for _ in range(REFERENCE_BURSTS):
            draws = [self._oracle.draw(self._rng.getrandbits(62))] * num_calls
            for order, times in burst_us.items():
                burst = run_own(self._desk, reference, draws, self._protocol, order)
                self._desk.release(burst)
                times.append(burst.elapsed_us)
        added_us = median(burst_us[Order.COPY]) - median(burst_us[Order.KEEP])
        return max(0.0, added_us) / num_calls

    def _call_us(self, reference: Worker, num_calls: int, cost_us: float) -> float:
        """Roughly, to plan bursts: of the shortest of a few of so many calls that cost so much."""
        draws = [self._oracle.draw(self._rng.getrandbits(62))] * num_calls
        times: list[float] = []
        for _ in range(REFERENCE_BURSTS):
            burst = run_own(self._desk, reference, draws, self._protocol)
            self._desk.release(burst)
            (burst_us,) = took_us([burst])
            times.append((burst_us - cost_us) / num_calls)
        return max(1.0, min(times))
