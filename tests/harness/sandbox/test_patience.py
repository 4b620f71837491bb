"""Time in which something compiles is counted apart from other time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from cudal1.harness.checks.progress import Phase, Stopwatch
from cudal1.harness.sandbox.patience import LOOK_S, Computed, Patience
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.shared.wire import State
from tests.harness.inside import Start, until

IDLE_S, LIMIT_S = 10.0, 60.0
BURNS = 'subprocess.Popen(["/bin/sh", "-c", "while :; do :; done"])\n'


class World:
    """A clock, and processes that compute while it runs."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.own_ns = self.others_ns = 5
        self.num_looks = 0

    def look(self) -> Computed:
        self.num_looks += 1
        return Computed(self.own_ns, self.others_ns)

    def patience(self, *, counts_own: bool = False) -> Patience:
        made = Patience(
            LIMIT_S, idle_s=IDLE_S, look=self.look, counts_own=counts_own, clock=lambda: self.now_s
        )
        made.begin()
        return made

    def go_on(self, seconds: float, *, own: bool = False, others: bool = False) -> Iterator[float]:
        """Advance the clock in steps of a tenth of a second."""
        for _ in range(round(10 * seconds)):
            self.now_s += 0.1
            self.own_ns += own
            self.others_ns += others
            yield self.now_s


def over_after(patience: Patience, steps: Iterator[float]) -> float | None:
    began = None
    for now_s in steps:
        began = now_s - 0.1 if began is None else began
        if patience.is_over():
            return now_s - began
    return None


@pytest.fixture
def world() -> World:
    return World()


def test_one_limit_holds_without_anything_to_look_at(world: World) -> None:
    patience = Patience(IDLE_S, clock=lambda: world.now_s)
    patience.begin()
    assert over_after(patience, world.go_on(60)) == pytest.approx(IDLE_S, abs=0.2)
    patience.end()
    assert not patience.has_compiled_too_long
    assert patience.compiling_s == 0


def test_a_worker_that_compiles_nothing_has_the_idle_limit(world: World) -> None:
    patience = world.patience()
    assert over_after(patience, world.go_on(60)) == pytest.approx(IDLE_S, abs=2 * LOOK_S)
    patience.end()
    assert not patience.has_compiled_too_long


@pytest.mark.parametrize(
    ("counts_own", "own", "others"), [(False, False, True), (True, True, False)]
)
def test_a_worker_that_compiles_has_minutes_and_no_more(
    world: World, counts_own: bool, own: bool, others: bool
) -> None:
    patience = world.patience(counts_own=counts_own)
    steps = world.go_on(90, own=own, others=others)
    assert over_after(patience, steps) == pytest.approx(LIMIT_S, abs=2 * LOOK_S)
    patience.end()
    assert patience.has_compiled_too_long
    assert patience.compiling_s == pytest.approx(LIMIT_S, abs=2 * LOOK_S)


def test_a_worker_s_own_computing_is_no_compiling_unless_its_source_says_so(world: World) -> None:
    patience = world.patience()
    steps = world.go_on(60, own=True)
    assert over_after(patience, steps) == pytest.approx(IDLE_S, abs=2 * LOOK_S)


def test_a_worker_that_hangs_after_compiling_has_the_rest_of_its_idle_limit(world: World) -> None:
    patience = world.patience()
    assert over_after(patience, world.go_on(4)) is None
    assert over_after(patience, world.go_on(30, others=True)) is None
    hung = over_after(patience, world.go_on(60))
    assert hung == pytest.approx(IDLE_S - 4, abs=4 * LOOK_S)
    patience.end()
    assert patience.compiling_s == pytest.approx(30, abs=2 * LOOK_S)
    assert patience.elapsed_s == pytest.approx(IDLE_S + 30, abs=4 * LOOK_S)


def test_the_kernel_is_asked_at_intervals_and_once_at_the_end(world: World) -> None:
    patience = world.patience()
    assert over_after(patience, world.go_on(5, others=True)) is None
    assert world.num_looks == pytest.approx(1 + 5 / LOOK_S, abs=2)
    before = world.num_looks
    patience.end()
    assert world.num_looks == before + 1


# --- what a warden tells -------------------------------------------------------------------------


def grows(worker: Worker, which: str) -> Callable[[], bool]:
    before = getattr(worker.computed(), which)
    return lambda: getattr(worker.computed(), which) > before + 20_000_000


@pytest.mark.parametrize(
    ("body", "which", "other"), [(BURNS, "others_ns", "own_ns"), ("burn(0)", "own_ns", "others_ns")]
)
def test_a_worker_s_own_computing_is_counted_apart_from_that_of_others(
    start: Start, needs: Callable[[str], None], body: str, which: str, other: str
) -> None:
    needs("own_proc")
    worker = start(f"{body}\ntime.sleep(600)")
    until(grows(worker, which))
    seen = worker.computed()
    until(grows(worker, which))
    grown = [new - old for old, new in zip(seen, worker.computed(), strict=True)]
    assert grown[Computed._fields.index(other)] < grown[Computed._fields.index(which)]


@pytest.mark.slow
def test_the_computing_of_others_still_counts_after_their_end(
    start: Start, needs: Callable[[str], None]
) -> None:
    needs("own_proc")
    worker = start('subprocess.run(["/bin/sh", "-c", "ulimit -t 1; while :; do :; done"])')
    until(lambda: worker.state != State.STARTING)
    told = [worker.computed().others_ns for _ in range(3)]
    assert min(told) > 500_000_000


def test_a_frozen_worker_can_still_be_asked(start: Start) -> None:
    worker = start("")
    worker.freeze()
    assert worker.computed() == worker.computed()
    worker.thaw()
    assert worker.is_alive()


def test_a_dead_worker_computes_nothing(start: Start) -> None:
    worker = start("os._exit(0)")
    until(lambda: not worker.is_alive())
    assert worker.computed() == Computed(0, 0)


# --- phases --------------------------------------------------------------------------------------


def test_each_second_of_a_verdict_is_in_one_phase() -> None:
    clock = itertools.count().__next__  # each call is a second later
    stopwatch = Stopwatch(lambda: float(clock()))
    with stopwatch.during(Phase.CHECKING):
        stopwatch.compiled(0.5)
        with stopwatch.during(Phase.MEASURING):
            pass
    found = stopwatch.phases()
    assert sum(seconds for _, seconds in found) == 5
    assert (found.starting_s, found.checking_s, found.measuring_s) == (2, 1.5, 1)
    assert found.compiling_s == 0.5


def test_a_failure_ends_its_phase() -> None:
    clock = itertools.count().__next__
    stopwatch = Stopwatch(lambda: float(clock()))
    with pytest.raises(ValueError, match="no"), stopwatch.during(Phase.MEASURING):
        raise ValueError("no")
    assert stopwatch.phases().measuring_s == 1
    assert stopwatch.phases().measuring_s == 1
