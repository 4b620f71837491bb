"""What a worker did outside of the interval, which is charged to it.

Threat: whoever works before an input is announced, after "done", or while the judge reads and
writes, has that work for nothing: a buffer cleared for the next call, a second output while the
first is read, an input looked at while it comes.

A worker of the CPU has one core, which stands idle outside of the interval: the loop sleeps. So
what it computed beyond the interval's length, as the kernel counts it, it computed outside. On a
GPU the judge looks whether the device is idle, and copies of outputs take longer while it is not.
"""

from __future__ import annotations

import time
from collections import deque
from statistics import median
from typing import TYPE_CHECKING

from cudal1.harness.interval import Interval, Order
from cudal1.harness.sandbox import Worker

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
"""Who works there has not just been woken: the same work takes a fifth less (8 MiB of zeros)."""
NUM_REMEMBERED = 15


class Outside:
    """Of one device and layout."""

    def __init__(self, device: torch.device) -> None:
        import torch

        self._is_cuda = device.type == "cuda"
        self._touched = torch.zeros(1, device=device)
        self._usual_ns: dict[tuple[Order, int], deque[int]] = {}
        """Of the reference's last bursts of so many calls."""

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

    def remember(self, worker: Worker, interval: Interval, count: int) -> None:
        """What the reference did there."""
        kind = interval.order, count
        known_ns = self._usual_ns.setdefault(kind, deque(maxlen=NUM_REMEMBERED))
        known_ns.append(self._outside_ns(worker, interval))

    def usual_us(self, order: Order, count: int) -> float:
        """What the reference does there for each call; 0 where none was run."""
        return max(0.0, median(self._usual_ns.get((order, count), [0])) / count / 1000)

    def unusual_ns(self, worker: Worker, interval: Interval, count: int, rest_ns: int) -> int:
        """What a candidate did there beyond it, of `rest_ns` that were not in the interval."""
        outside_ns = self._outside_ns(worker, interval)
        known_ns = self._usual_ns.get((interval.order, count)) or [outside_ns]
        if self._is_cuda:
            return max(0, outside_ns - round(COPY_SLACK * min(known_ns)))
        if worker.has_changed:  # whoever has ended may have done anything
            return rest_ns
        # below zero it slept inside of the interval, and had that counted as time already
        usual_ns = max(0, round(median(known_ns)))
        return round(WARM * max(0, outside_ns - usual_ns - WORK_SLACK_NS * count))

    def _outside_ns(self, worker: Worker, interval: Interval) -> int:
        return interval.copying_ns if self._is_cuda else worker.worked_ns - interval.elapsed_ns
