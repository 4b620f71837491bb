"""The judge knows from its own looks how late it saw "done"."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.harness.device.turns import Turns
from cudal1.harness.exchange import interval as module
from cudal1.harness.exchange.interval import LATE_NS, LOOKS, Ending, Interval, Order
from cudal1.harness.sandbox.patience import Patience
from cudal1.harness.shared.wire import State

LOOK_NS = 100


class Clock:
    """A clock that goes on with each look, and while the judge has no core."""

    def __init__(self) -> None:
        self.now_ns = 0

    def perf_counter_ns(self) -> int:
        return self.now_ns

    def sleep(self, _s: float) -> None:
        self.now_ns += 200_000


class Watched:
    """A worker that is done after a number of looks; the judge is away during one of them."""

    def __init__(self, clock: Clock, *, looks: int, away_at: int, away_ns: int) -> None:
        self.state, self.num_published, self.num_awake = State.READY, 0, 1
        self.job = SimpleNamespace(device="fake")
        self.memory = SimpleNamespace(process=None)
        self._clock, self._away_at, self._away_ns = clock, away_at, away_ns
        self._looks = looks
        self._num_looks = 0

    @property
    def num_done(self) -> int:
        self._num_looks += 1
        self._clock.now_ns += LOOK_NS
        if self._num_looks == self._away_at:
            self._clock.now_ns += self._away_ns
        return int(self._num_looks >= self._looks)

    def announce(self, num_calls: int) -> None:
        self.num_published += num_calls

    def thaw(self) -> None:
        pass

    def go(self, _count: int, *, order: int) -> None:
        pass

    def is_alive(self) -> bool:
        return True


class Piece:
    num_calls, is_refused, num_untouched = 1, False, 0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def publish(self, wake: Any) -> int:
        wake()
        return self._clock.now_ns

    def over(self) -> int:
        return self._clock.now_ns

    def capture(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def run(clock: Clock, *, looks: int, away_at: int, away_ns: int) -> Interval:
    worker: Any = Watched(clock, looks=looks, away_at=away_at, away_ns=away_ns)
    interval = Interval(worker, Order.CHAIN, Patience(100.0), Turns())
    pieces: Any = [Piece(clock)]
    assert interval.run(1, pieces) is Ending.DONE
    return interval


@pytest.mark.parametrize("looks", [1, LOOKS, 20 * LOOKS])
def test_a_judge_that_looks_all_the_time_is_never_late(clock: Clock, looks: int) -> None:
    assert run(clock, looks=looks, away_at=0, away_ns=0).waited_ns == 0


@pytest.mark.parametrize("looks", [5, 20 * LOOKS])
def test_a_judge_that_was_away_at_the_end_may_be_late_by_as_much(clock: Clock, looks: int) -> None:
    away_ns = 40 * LATE_NS
    interval = run(clock, looks=looks, away_at=looks, away_ns=away_ns)
    assert away_ns <= interval.waited_ns <= away_ns + (LOOKS + 1) * LOOK_NS
    assert interval.elapsed_ns >= interval.waited_ns


def test_a_judge_that_was_away_while_the_worker_computed_is_not_late(clock: Clock) -> None:
    """It did not lengthen the burst; a worker that sleeps meanwhile is given no time."""
    away_ns = 40 * LATE_NS
    interval = run(clock, looks=20 * LOOKS, away_at=5 * LOOKS, away_ns=away_ns)
    assert interval.elapsed_ns > away_ns
    assert interval.waited_ns == 0
