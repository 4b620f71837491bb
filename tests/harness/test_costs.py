"""What is subtracted of a burst is what bursts cost, however busy the machine was meanwhile."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1 import protocols
from cudal1.harness import costs
from cudal1.harness.costs import EMPTY_BURSTS, MAX_EMPTY_BURSTS, Costs
from cudal1.harness.interval import Order


def make(monkeypatch: pytest.MonkeyPatch, order: Order, times_us: list[float]) -> tuple[Costs, Any]:
    """Costs whose empty bursts take these times, one after the other, and what was run."""
    left, run = iter(times_us), list[int]()

    def run_own(_desk: Any, _worker: Any, draws: list[Any], _protocol: Any, *_: Order) -> Any:
        run.append(len(draws))
        return SimpleNamespace(elapsed_us=next(left))

    monkeypatch.setattr(costs, "run_own", run_own)
    desk: Any = SimpleNamespace(timed_order=order, release=lambda _: None)
    oracle: Any = SimpleNamespace(draw=lambda _: None)
    crew: Any = SimpleNamespace(empty=lambda: None)
    return Costs(oracle, desk, crew, protocols.load("cpu"), random.Random(1)), run


TIMES = [500.0, 470.0, 480.0, 9000.0, 475.0, 481.0, 9000.0, 9000.0, 479.0]


@pytest.mark.parametrize(("order", "cost"), [(Order.CHAIN, 470.0), (Order.KEEP, 481.0)])
def test_on_a_gpu_it_is_what_most_bursts_cost(
    monkeypatch: pytest.MonkeyPatch, order: Order, cost: float
) -> None:
    found, run = make(monkeypatch, order, TIMES)
    assert found.empty_us(8) == cost
    assert run == [8] * EMPTY_BURSTS


@pytest.mark.parametrize("order", Order)
def test_lengths_are_kept_apart(monkeypatch: pytest.MonkeyPatch, order: Order) -> None:
    found, _ = make(monkeypatch, order, [500.0] * EMPTY_BURSTS + [300.0] * EMPTY_BURSTS)
    assert (found.empty_us(8), found.empty_us(4)) == (500.0, 300.0)


@pytest.mark.parametrize("order", Order)
def test_what_was_measured_before_counts(monkeypatch: pytest.MonkeyPatch, order: Order) -> None:
    found, run = make(monkeypatch, order, [*TIMES, 9000.0])
    first = found.empty_us(8)
    assert found.empty_us(8) == pytest.approx(first, rel=0.05)
    assert len(run) == EMPTY_BURSTS + 1


def test_bursts_that_a_busy_machine_spoilt_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = [500.0 + 100.0 * number for number in range(EMPTY_BURSTS)]
    found, run = make(monkeypatch, Order.KEEP, [*spoilt, 500.0, 500.0, *[700.0] * 20])
    found.empty_us(8)
    assert len(run) == EMPTY_BURSTS + 2


def test_a_machine_that_never_agrees_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [100.0 * 1.5**number for number in range(MAX_EMPTY_BURSTS + 1)]
    found, run = make(monkeypatch, Order.CHAIN, times + [90.0] * EMPTY_BURSTS)
    assert found.empty_us(8) == 100.0
    assert run.count(8) == MAX_EMPTY_BURSTS


def test_where_it_has_no_time_for_a_long_burst_one_of_a_single_call_bounds_its_cost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoilt = [3000.0 * 1.5**number for number in range(MAX_EMPTY_BURSTS)]
    found, run = make(monkeypatch, Order.CHAIN, [*spoilt, *[10.0] * EMPTY_BURSTS])
    assert found.empty_us(8) == 80.0
    assert run.count(1) == EMPTY_BURSTS


@pytest.mark.parametrize(("copied_us", "each_us"), [(580.0, 10.0), (490.0, 0.0)])
def test_a_copy_costs_what_it_adds_to_most_bursts_of_the_reference(
    monkeypatch: pytest.MonkeyPatch, copied_us: float, each_us: float
) -> None:
    pairs = [(500.0, copied_us), (500.0, copied_us), (500.0, 9000.0)] * 2
    found, run = make(monkeypatch, Order.KEEP, [each for pair in pairs for each in pair])
    reference: Any = None
    assert found.copying_us(reference, 8) == each_us
    assert set(run) == {8}
