"""Charge a worker for what it did outside of the interval.

Threat: a worker that works before an input is announced, after "done", or while the judge reads and
writes, has that work for nothing. It may clear a buffer for the next call, compute a second output
while the first is read, or look at an input while it comes.

A worker of the CPU has one core, which stands idle outside of the interval: the loop sleeps. So
what the worker computed beyond the interval's length, as the kernel counts it, was computed
outside. On a GPU the judge looks whether the device is idle, and copies of outputs take longer
while it is not.

A burst on a CPU is disturbed where other programs have the worker's core meanwhile, or the judge's.
Its interval is longer than its calls by what they waited. Then only what was computed tells, in the
interval or outside. Threat: a worker can wait on purpose, for a thread of its own; so a candidate
counts as disturbed only while the reference is.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from cudal1.harness.exchange.interval import Interval, Order
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.problem import DeviceClass

if TYPE_CHECKING:
    import torch

QUIET_NS, CALM_NS = 200_000, 1_500_000
"""Nanoseconds: a wait for a GPU that is longer than the first is charged; a look that is shorter
than the second finds it calm. A look at an idle GPU takes some 25 us, or 185 us if another context
had it. A look at one that runs a kernel takes a slice of its time: 2.4 ms on an H100."""
PATIENCE_NS = 1_000_000_000
"""Nanoseconds that the judge waits for a GPU that is still at work."""
COPY_SLACK = 1.1
"""Factor by which a candidate's copies of outputs on a GPU may take longer than the reference's.
Copies of one burst's outputs differ by some 2 %."""
WORK_SLACK_NS = 3_000
"""Nanoseconds for each call that a worker of a CPU may compute outside of the interval beyond what
is usual. It computes 5 us a call there, more after long ones, and that differs by as much."""
WARM = 1.25
"""Factor by which work outside of the interval counts on a CPU. It takes a fifth less than in the
interval, where the worker has just been woken (8 MiB of zeros)."""
NUM_REMEMBERED = 15
ENOUGH = 5
"""Number of undisturbed bursts of nothing that tell what our own loop computes; a single one may
have cost more."""
DISTURBED, DISTURBED_NS = 0.05, 20_000
"""Share of an interval, and nanoseconds. A burst is disturbed if the worker waited for a core, or
the judge looked late, for longer than both. Waking takes some 5 us a burst."""


@dataclass(frozen=True)
class Account:
    """The times of a burst that count."""

    elapsed_ns: int
    """Nanoseconds of the burst's interval, with what is charged for work outside of it."""
    outside_ns: int
    """Nanoseconds of computing outside of the interval, on a GPU of copying, beyond what is
    usual."""
    computed_ns: int
    """Nanoseconds that the burst took by the kernel's count of what was computed, on a CPU."""
    is_disturbed: bool
    """True if other programs had a core meanwhile, on a CPU."""


class _Loop:
    """The least nanoseconds of bursts in which a worker computed nothing."""

    def __init__(self) -> None:
        self.elapsed_ns = self.worked_ns = sys.maxsize
        self._undisturbed_ns: list[int] = []

    @property
    def undisturbed_ns(self) -> int | None:
        """The least that undisturbed bursts computed, in ns; None until `ENOUGH` were seen."""
        return min(self._undisturbed_ns) if len(self._undisturbed_ns) >= ENOUGH else None

    def see(self, elapsed_ns: int, worked_ns: int, *, is_disturbed: bool) -> None:
        """Take in one more burst."""
        self.elapsed_ns = min(self.elapsed_ns, elapsed_ns)
        self.worked_ns = min(self.worked_ns, worked_ns)
        if not is_disturbed:
            self._undisturbed_ns = sorted([*self._undisturbed_ns, worked_ns])[:ENOUGH]


class Outside:
    """The accounts of what workers do outside of intervals, for one device and layout."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._is_cuda = device.type == "cuda"
        self._touched = torch.zeros(1, device=device)
        self._usual_ns: dict[tuple[Order, int], deque[int]] = {}
        """Nanoseconds outside of the interval in the reference's last undisturbed bursts, by order
        and number of calls."""
        self._loops: dict[int, _Loop] = {}
        """Times of our own loop in a chain, by number of calls."""
        self._was_disturbed: deque[bool] = deque(maxlen=NUM_REMEMBERED)
        """True for each of the reference's last bursts that was disturbed."""

    def calm_ns(self) -> int:
        """Wait for what still runs on a GPU while its worker stands still; return the ns, if many.

        Before a burst this finds a worker that polls its slots for a changed byte. After a burst it
        finds a worker that said "done" before it was.
        """
        if not self._is_cuda:
            return 0
        began_ns = time.perf_counter_ns()
        self.await_calm(PATIENCE_NS)
        waited_ns = time.perf_counter_ns() - began_ns
        return waited_ns if waited_ns > QUIET_NS else 0

    def await_calm(self, patience_ns: int) -> bool:
        """Wait up to `patience_ns` until no other process works on a GPU; return if so."""
        if not self._is_cuda:
            return True
        import torch

        began_ns = time.perf_counter_ns()
        while True:
            started_ns = time.perf_counter_ns()
            self._touched.fill_(0)
            torch.cuda.synchronize()
            ended_ns = time.perf_counter_ns()
            if ended_ns - started_ns < CALM_NS:
                return True
            if ended_ns - began_ns > patience_ns:
                return False

    def account(
        self,
        worker: Worker,
        interval: Interval,
        count: int,
        *,
        is_ours: bool,
        is_watched: bool,
        rest_ns: int,
    ) -> Account:
        """Return the times of a burst that count.

        Args:
            worker: ran the burst, and stands still again.
            interval: of the burst.
            count: the number of the burst's calls.
            is_ours: whether it runs our own code, with which candidates are compared.
            is_watched: whether no other judge had the device: what was unusual is the worker's.
            rest_ns: all time from the worker's thaw to its stop that was not in the interval.
        """
        is_disturbed = self._is_disturbed(worker, interval)
        if is_ours:
            self._remember(worker, interval, count, is_disturbed=is_disturbed)
            outside_ns, charged_ns = 0, 0
        elif not is_watched:
            outside_ns, charged_ns = 0, 0
        else:
            is_disturbed = is_disturbed and any(self._was_disturbed)
            outside_ns = self._unusual_ns(worker, interval, count)
            charged_ns = outside_ns if self._is_cuda else round(WARM * outside_ns)
            # a process that began or ended meanwhile may have done anything
            if worker.has_changed and not self._is_cuda:
                outside_ns = charged_ns = rest_ns
        elapsed_ns = charged_ns + self._took_ns(worker, interval, is_disturbed=is_disturbed)
        computed_ns = elapsed_ns
        if not worker.has_changed:
            computed_ns = self._computed_ns(worker, interval, count)
            if computed_ns <= 0:  # disturbed too much to tell: no candidate shall gain by that
                computed_ns = 0 if is_ours else elapsed_ns
        return Account(elapsed_ns, outside_ns, computed_ns, is_disturbed)

    def usual_us(self, order: Order, count: int) -> float | None:
        """Return the reference's microseconds per call outside of the interval.

        It is None where all bursts of that order and number of calls were disturbed.
        """
        known_ns = self._usual_ns.get((order, count))
        return None if known_ns is None else max(0.0, median(known_ns) / count / 1000)

    def _remember(
        self, worker: Worker, interval: Interval, count: int, *, is_disturbed: bool
    ) -> None:
        """Remember what a worker of ours did: the reference's, or one that computes nothing."""
        if interval.order is Order.EMPTY:  # tells nothing of calls
            return
        if not worker.job.entry:
            if interval.order is Order.CHAIN:
                elapsed_ns = self._took_ns(worker, interval, is_disturbed=is_disturbed)
                loop = self._loops.setdefault(count, _Loop())
                loop.see(elapsed_ns, worker.worked_ns, is_disturbed=is_disturbed)
            return
        self._was_disturbed.append(is_disturbed)
        if not is_disturbed:
            kind = interval.order, count
            known_ns = self._usual_ns.setdefault(kind, deque(maxlen=NUM_REMEMBERED))
            known_ns.append(self._outside_ns(worker, interval))

    def _took_ns(self, worker: Worker, interval: Interval, *, is_disturbed: bool) -> int:
        """Return the length of an interval in nanoseconds.

        A worker that computes nothing counts for at most what it computed, where it was disturbed.
        Else too much would be subtracted from all other bursts if every one of its own was
        disturbed.
        """
        if worker.job.entry or not is_disturbed:
            return interval.elapsed_ns
        return min(interval.elapsed_ns, worker.worked_ns)

    def _computed_ns(self, worker: Worker, interval: Interval, count: int) -> int:
        """Return what a worker of the CPU computed in and around an interval, without our own loop.

        Time that it slept in the interval counts, too.
        """
        slept_ns = interval.elapsed_ns - interval.waited_ns
        return max(worker.worked_ns - self._loop_ns(count), slept_ns)

    def _is_disturbed(self, worker: Worker, interval: Interval) -> bool:
        is_host = worker.job.device == DeviceClass.CPU.value  # the fake device sleeps
        return is_host and interval.waited_ns > max(DISTURBED_NS, DISTURBED * interval.elapsed_ns)

    def _loop_ns(self, count: int) -> int:
        """Return the least ns that our own loop computes outside of the intervals of so many calls.

        A busy machine may have disturbed all such bursts. Shorter ones then limit the
        result: they never take more.
        """
        mine = self._loops.get(count)
        if mine is None:
            return 0
        shorter = [(number, loop) for number, loop in self._loops.items() if number <= count]
        worked_ns = mine.undisturbed_ns or min(loop.worked_ns for _, loop in shorter)
        elapsed_ns = min(loop.elapsed_ns * count // number for number, loop in shorter)
        return worked_ns - elapsed_ns

    def _unusual_ns(self, worker: Worker, interval: Interval, count: int) -> int:
        """Return the ns outside of an interval beyond what the reference takes there."""
        outside_ns = self._outside_ns(worker, interval)
        known_ns = self._usual_ns.get((interval.order, count)) or [outside_ns]
        if self._is_cuda:
            return max(0, outside_ns - round(COPY_SLACK * min(known_ns)))
        # below zero: the worker slept in the interval, and had that counted as time already
        usual_ns = max(0, round(median(known_ns)))
        return max(0, outside_ns - usual_ns - WORK_SLACK_NS * count)

    def _outside_ns(self, worker: Worker, interval: Interval) -> int:
        return interval.copying_ns if self._is_cuda else worker.worked_ns - interval.elapsed_ns
