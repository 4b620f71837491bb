"""Run one trusted interval: publish inputs, wait for "done", hold every output.

Threat: the worker may write anything anywhere in its shared memory at any time. The clock runs from
the announcement of inputs until the worker says "done". On a GPU it runs from before they are
copied until the device is the judge's. Outputs are copied at once. An early "done" only copies
poison or what was there before, and a late write comes too late. Nothing else that the worker says
enters the time.

On the CPU a timed burst is a chain: input i+1 is published only when output i is held, so that
calls cannot be batched. A worker that looks at an input before it is announced works outside of the
interval (`outside`). On a GPU each exchange costs switches of context (0.3 ms), and launches could
not run ahead. So there all inputs are published at once, and calls can be batched. Therefore chains
are timed as well before anything is certified (`credible`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from enum import Enum

from cudal1.harness.device.processor import waiting
from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange.pieces import Piece
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.shared import wire
from cudal1.harness.shared.wire import State
from cudal1.problem import DeviceClass

SPIN_S = 0.02
"""Seconds that the judge polls without sleeping. Longer calls can bear a coarser look."""
NAP_S = 0.0002
LOOKS = 50
"""Looks at the counter between two looks at the clock."""
LATE_NS = 50_000
"""Nanoseconds since the last look at the clock above which the judge saw "done" too late: it had no
core meanwhile, or slept."""
WAKE_LIMIT_NS = 300_000
"""Nanoseconds that the judge waits for a worker to wake, which takes some 10 to 50 us. The wait is
not in the interval. The input lies there already: what the worker computes is counted
(`outside`)."""


class Ending(Enum):
    """The ending of a burst."""

    DONE = "done"
    DIED = "died"
    TIMED_OUT = "timed out"
    FAILED = "failed"
    """The worker says that the candidate raised; its text says what."""


class Order(Enum):
    """The order in which a burst's inputs and outputs are exchanged."""

    CHAIN = "chain"
    """Each input is published when the output before it is held."""
    KEEP = "keep"
    """All inputs at once; the worker keeps all outputs and hands them over after the last call."""
    COPY = "copy"
    """All inputs at once; the worker copies each output before the next call. The caller of a
    module that reuses one output buffer has to do the same. The copy is in the interval."""
    EMPTY = "empty"
    """All inputs at once, and no calls: what a burst costs by itself. Only the reference's worker
    is asked for it. A candidate that skips its calls unasked leaves poison in its slots."""

    @property
    def code(self) -> int:
        """The number by which a worker is told this order."""
        return {
            Order.CHAIN: wire.CHAIN,
            Order.KEEP: wire.KEEP,
            Order.COPY: wire.COPY,
            Order.EMPTY: wire.EMPTY,
        }[self]


def wait_ready(worker: Worker, patience: Patience, turns: Turns | None = None) -> Ending:
    """Wait until the worker has built its module; other judges may have turns meanwhile."""
    turns = turns or Turns()
    patience.begin()
    try:
        while worker.state == State.STARTING:
            if not worker.is_alive():
                return Ending.DIED if worker.state == State.STARTING else Ending.FAILED
            if patience.is_over():
                return Ending.TIMED_OUT
            patience.excuse(turns.pass_on())
            time.sleep(NAP_S)
    finally:
        patience.end()
    return Ending.DONE if worker.state == State.READY else Ending.FAILED


class Interval:
    """The exchanges of one burst, and the times that count."""

    def __init__(self, worker: Worker, order: Order, patience: Patience, turns: Turns) -> None:
        self._worker = worker
        self._turns = turns
        self.order = order
        self._patience = patience
        self.elapsed_ns = 0
        """Nanoseconds from the announcement of inputs to "done", in all exchanges."""
        self.waited_ns = 0
        """Nanoseconds that the worker's first thread waited for a core, in exchanges or in between,
        and by which the judge may have seen "done" too late."""
        self.copying_ns = 0
        """Nanoseconds from the end of the interval until the outputs were held, in all
        exchanges."""

    def run(self, count: int, pieces: Sequence[Piece]) -> Ending:
        """Run the exchanges of a worker that stands still, until all outputs are held."""
        is_host = self._worker.job.device == DeviceClass.CPU.value
        with waiting(self._worker.memory.process if is_host else None) as waited:
            self._worker.thaw()
            self._patience.begin()
            try:
                ending = self._exchanged(count, pieces)
            finally:
                self._patience.end()
        self.waited_ns += waited.ns
        return ending

    def _exchanged(self, count: int, pieces: Sequence[Piece]) -> Ending:
        worker = self._worker
        for piece in pieces:
            if self._patience.is_over():
                return Ending.TIMED_OUT
            started_ns = piece.publish(lambda: self._wake(count))
            worker.announce(piece.num_calls)
            ending, looked_ns, passed_ns = self._await(worker.num_published)
            late_ns = time.perf_counter_ns() - looked_ns
            over_ns = piece.over()
            self.waited_ns += late_ns if late_ns > LATE_NS else 0
            self.elapsed_ns += over_ns - started_ns - passed_ns
            if ending is not Ending.DONE:
                return ending
            piece.capture()
            self.copying_ns += time.perf_counter_ns() - over_ns
        return Ending.DONE

    def _wake(self, count: int) -> None:
        """Wake the worker; return once it is ready for the next input, or takes too long for that.

        The time that it takes to wake is the machine's affair, and no part of any call.
        """
        worker = self._worker
        worker.go(count, order=self.order.code)
        deadline_ns = time.perf_counter_ns() + WAKE_LIMIT_NS
        while worker.num_awake <= worker.num_published and time.perf_counter_ns() < deadline_ns:
            os.sched_yield()

    def _await(self, target: int) -> tuple[Ending, int, int]:
        """Wait until the worker has done `target` calls.

        Returns:
            The ending; when the judge last saw that they were not done, in ns; for how many ns
                other judges had the device meanwhile.
        """
        worker, passed_ns = self._worker, 0
        looked_ns = time.perf_counter_ns()
        for _ in range(LOOKS):
            if worker.num_done >= target:
                return Ending.DONE, looked_ns, passed_ns
        spin_until = time.perf_counter_ns() + int(SPIN_S * 1e9)
        while True:
            for _ in range(LOOKS):
                if worker.num_done >= target:
                    return Ending.DONE, looked_ns, passed_ns
            if worker.state != State.READY:
                return Ending.FAILED, looked_ns, passed_ns
            looked_ns = time.perf_counter_ns()
            if looked_ns > spin_until:
                if not worker.is_alive():
                    has_failed = worker.state != State.READY
                    ending = Ending.FAILED if has_failed else Ending.DIED
                    return ending, looked_ns, passed_ns
                if self._patience.is_over():
                    return Ending.TIMED_OUT, looked_ns, passed_ns
                given_s = self._turns.pass_on()
                self._patience.excuse(given_s)
                given_ns = int(given_s * 1e9)
                passed_ns += given_ns
                looked_ns += given_ns
                time.sleep(NAP_S)
            else:
                os.sched_yield()
