"""What a worker did outside of the interval, which is charged to it.

Threat: whoever works before an input is announced, after "done", or while the judge reads and
writes, has that work for nothing: a buffer cleared for the next call, a second output while the
first is read, an input looked at while it comes.

A worker of the CPU has one core, which stands idle outside of the interval: the loop sleeps. So
what it computed beyond the interval's length, as the kernel counts it, it computed outside. On a
GPU the judge looks whether the device is idle, and copies of outputs take longer while it is not.

Where other programs have a core meanwhile, the worker's or the judge's, a burst on a CPU is
disturbed: an interval is longer than its calls by what they waited. Then only what was computed
tells, wherever that was. Threat: a worker can wait on purpose, for a thread of its own; so a
candidate counts as disturbed only while the reference is.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from cudal1.harness.interval import Interval, Order
from cudal1.harness.sandbox import Worker
from cudal1.problem import DeviceClass

if TYPE_CHECKING:
    import torch

QUIET_NS, CALM_NS = 200_000, 1_500_000
"""A look at an idle GPU takes some 25 us, 185 us if another context had it; one shared with a
kernel that runs, a slice of its time: 2.4 ms on an H100."""
PATIENCE_NS = 1_000_000_000
"""How long the judge waits for a GPU that is still at work."""
COPY_SLACK = 1.1
"""Copies of the outputs of one burst on a GPU differ by some 2 %."""
WORK_SLACK_NS = 3_000
"""What a worker of a CPU computes outside of the interval, 5 us a call and more after long ones,
differs by as much."""
WARM = 1.25
"""Work outside of the interval counts so many times: it takes a fifth less than in the interval,
where the worker has just been woken (8 MiB of zeros)."""
NUM_REMEMBERED = 15
ENOUGH = 5
"""Bursts of nothing that tell what our own loop computes; a single one may have cost more."""
DISTURBED, DISTURBED_NS = 0.05, 20_000
"""A burst in which the worker waited longer for a core, or the judge looked later, than this share
of its interval and so much; waking takes some 5 us a burst."""


@dataclass(frozen=True)
class Account:
    """What counts of a burst."""

    elapsed_ns: int
    """Of its interval, and what is charged for work outside of it."""
    outside_ns: int
    """What was computed there, on a GPU copied, beyond what is usual."""
    computed_ns: int
    """What it took by the kernel's count of what was computed, on a CPU."""
    is_disturbed: bool
    """Whether other programs had a core meanwhile, on a CPU."""


class _Loop:
    """The least that bursts took in which a worker computed nothing, in ns."""

    def __init__(self) -> None:
        self.elapsed_ns = self.worked_ns = sys.maxsize
        self._undisturbed_ns: list[int] = []

    @property
    def undisturbed_ns(self) -> int | None:
        """What was computed in those that nobody disturbed, once they are some."""
        return min(self._undisturbed_ns) if len(self._undisturbed_ns) >= ENOUGH else None

    def see(self, elapsed_ns: int, worked_ns: int, *, is_disturbed: bool) -> None:
        """Take one more in."""
        self.elapsed_ns = min(self.elapsed_ns, elapsed_ns)
        self.worked_ns = min(self.worked_ns, worked_ns)
        if not is_disturbed:
            self._undisturbed_ns = sorted([*self._undisturbed_ns, worked_ns])[:ENOUGH]


class Outside:
    """Of one device and layout."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._is_cuda = device.type == "cuda"
        self._touched = torch.zeros(1, device=device)
        self._usual_ns: dict[tuple[Order, int], deque[int]] = {}
        """Of the reference's last bursts of so many calls, those that nobody disturbed."""
        self._loops: dict[int, _Loop] = {}
        """What our own loop takes in a chain of so many calls."""
        self._was_disturbed: deque[bool] = deque(maxlen=NUM_REMEMBERED)
        """Of the reference's last bursts."""

    def calm_ns(self) -> int:
        """Wait for what still runs on a GPU while its worker stands still; how long, if long.

        Before a burst that is whoever waited for a byte of his slots to change, after it whoever
        said "done" before it was.
        """
        if not self._is_cuda:
            return 0
        began_ns = time.perf_counter_ns()
        self.await_calm(PATIENCE_NS)
        waited_ns = time.perf_counter_ns() - began_ns
        return waited_ns if waited_ns > QUIET_NS else 0

    def await_calm(self, patience_ns: int) -> bool:
        """Wait for so long until nobody else is at work on a GPU; return whether that is so."""
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
        """What counts of a burst of so many calls.

        Args:
            worker: that ran it, and stands still again.
            interval: of the burst.
            count: its calls.
            is_ours: whether it runs our own code, to which others' are then compared.
            is_watched: whether nobody else had the device, so that what was unusual is its own.
            rest_ns: all time from its thaw to its stop that was not in the interval.
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
            if (
                worker.has_changed and not self._is_cuda
            ):  # a worker that has ended may have done anything
                outside_ns = charged_ns = rest_ns
        elapsed_ns = charged_ns + self._took_ns(worker, interval, is_disturbed=is_disturbed)
        computed_ns = elapsed_ns
        if not worker.has_changed:
            computed_ns = self._computed_ns(worker, interval, count)
            if computed_ns <= 0:  # it was disturbed too much to tell: nobody shall gain by that
                computed_ns = 0 if is_ours else elapsed_ns
        return Account(elapsed_ns, outside_ns, computed_ns, is_disturbed)

    def usual_us(self, order: Order, count: int) -> float | None:
        """What the reference does there for each call; None where all its bursts were disturbed."""
        known_ns = self._usual_ns.get((order, count))
        return None if known_ns is None else max(0.0, median(known_ns) / count / 1000)

    def _remember(
        self, worker: Worker, interval: Interval, count: int, *, is_disturbed: bool
    ) -> None:
        """What a worker of ours did, the reference or one that computes nothing."""
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
        """How long an interval was; of a worker that computes nothing no longer than it computed.

        Else too much would be subtracted of all other bursts where each of its own was disturbed.
        """
        if worker.job.entry or not is_disturbed:
            return interval.elapsed_ns
        return min(interval.elapsed_ns, worker.worked_ns)

    def _computed_ns(self, worker: Worker, interval: Interval, count: int) -> int:
        """What a worker of the CPU computed in and around an interval, but for our own loop.

        Where it slept in the interval, that counts, too.
        """
        slept_ns = interval.elapsed_ns - interval.waited_ns
        return max(worker.worked_ns - self._loop_ns(count), slept_ns)

    def _is_disturbed(self, worker: Worker, interval: Interval) -> bool:
        is_host = worker.job.device == DeviceClass.CPU.value  # the fake device sleeps
        return is_host and interval.waited_ns > max(DISTURBED_NS, DISTURBED * interval.elapsed_ns)

    def _loop_ns(self, count: int) -> int:
        """What our own loop computes outside of the intervals of so many calls, at least.

        A busy machine may have disturbed all such bursts, but then no shorter ones took longer.
        """
        mine = self._loops.get(count)
        if mine is None:
            return 0
        shorter = [(number, loop) for number, loop in self._loops.items() if number <= count]
        worked_ns = mine.undisturbed_ns or min(loop.worked_ns for _, loop in shorter)
        elapsed_ns = min(loop.elapsed_ns * count // number for number, loop in shorter)
        return worked_ns - elapsed_ns

    def _unusual_ns(self, worker: Worker, interval: Interval, count: int) -> int:
        """What a candidate did outside of an interval, beyond what the reference does there."""
        outside_ns = self._outside_ns(worker, interval)
        known_ns = self._usual_ns.get((interval.order, count)) or [outside_ns]
        if self._is_cuda:
            return max(0, outside_ns - round(COPY_SLACK * min(known_ns)))
        # below zero it slept inside of the interval, and had that counted as time already
        usual_ns = max(0, round(median(known_ns)))
        return max(0, outside_ns - usual_ns - WORK_SLACK_NS * count)

    def _outside_ns(self, worker: Worker, interval: Interval) -> int:
        return interval.copying_ns if self._is_cuda else worker.worked_ns - interval.elapsed_ns
