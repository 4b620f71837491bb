"""The cost subtracted from a burst is what bursts cost, however busy the machine was."""

from __future__ import annotations

import random
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.harness.exchange import costs
from cudal1.harness.exchange.costs import EMPTY_BURSTS, MAX_EMPTY_BURSTS, Costs
from cudal1.harness.exchange.interval import Order
from cudal1.settings import protocols

REFERENCE: Any = "the reference's worker"
NOBODY: Any = "the worker that computes nothing"
ORDERS = (Order.CHAIN, Order.KEEP)
"""Orders of timed bursts."""


def make(monkeypatch: pytest.MonkeyPatch, order: Order, times_us: list[float]) -> tuple[Costs, Any]:
    """Return costs that are told these times of empty bursts in turn, and the lengths that were
    run."""
    found, run, _ = make_noting(monkeypatch, order, times_us)
    return found, run


def make_noting(
    monkeypatch: pytest.MonkeyPatch, order: Order, times_us: list[float]
) -> tuple[Costs, list[int], list[tuple[Any, Order]]]:
    """Return as `make` does, and the worker and the order of each burst that was run."""
    left, run, asked = iter(times_us), list[int](), list[tuple[Any, Order]]()

    def run_own(_runner: Any, worker: Any, draws: list[Any], _protocol: Any, order: Order) -> Any:
        run.append(len(draws))
        asked.append((worker, order))
        return SimpleNamespace(elapsed_us=next(left))

    monkeypatch.setattr(costs, "run_own", run_own)
    runner: Any = SimpleNamespace(timed_order=order, release=lambda _: None)
    oracle: Any = SimpleNamespace(draw=lambda _: None)
    workers: Any = SimpleNamespace(empty=lambda: NOBODY)
    return Costs(oracle, runner, workers, protocols.load("cpu"), random.Random(1)), run, asked


TIMES = [500.0, 470.0, 480.0, 9000.0, 475.0, 481.0, 9000.0, 9000.0, 479.0]


@pytest.mark.parametrize(("order", "cost"), [(Order.CHAIN, 470.0), (Order.KEEP, 481.0)])
def test_the_cost_is_the_median_burst_on_a_gpu_and_the_shortest_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch, order: Order, cost: float
) -> None:
    found, run = make(monkeypatch, order, TIMES)
    assert found.empty_us(8, REFERENCE) == cost
    assert run == [8] * EMPTY_BURSTS


def test_empty_bursts_run_in_the_reference_s_worker_on_a_gpu_and_in_an_empty_one_on_a_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, _, asked = make_noting(monkeypatch, Order.KEEP, TIMES)
    found.empty_us(8, REFERENCE)
    assert set(asked) == {(REFERENCE, Order.EMPTY)}
    found, _, asked = make_noting(monkeypatch, Order.CHAIN, TIMES)
    found.empty_us(8, REFERENCE)
    assert set(asked) == {(NOBODY, Order.CHAIN)}


def test_a_worker_that_computes_nothing_is_made_on_a_cpu_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[str]()
    for order in (Order.KEEP, Order.CHAIN):
        found, _ = make(monkeypatch, order, [])
        monkeypatch.setattr(found._workers, "empty", partial(made.append, order.value))
        found.get_ready()
    assert made == ["chain"]


@pytest.mark.parametrize("order", ORDERS)
def test_costs_of_different_lengths_are_kept_apart(
    monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    found, _ = make(monkeypatch, order, [500.0] * EMPTY_BURSTS + [300.0] * EMPTY_BURSTS)
    assert (found.empty_us(8, REFERENCE), found.empty_us(4, REFERENCE)) == (500.0, 300.0)


@pytest.mark.parametrize("order", ORDERS)
def test_earlier_measurements_of_a_length_count(
    monkeypatch: pytest.MonkeyPatch, order: Order
) -> None:
    found, run = make(monkeypatch, order, [*TIMES, 9000.0])
    first = found.empty_us(8, REFERENCE)
    assert found.empty_us(8, REFERENCE) == pytest.approx(first, rel=0.05)
    assert len(run) == EMPTY_BURSTS + 1


@pytest.mark.parametrize(
    ("call_us", "lengths"),
    [
        (30.0, [1, 1, 1, 16, 16, 16, 16, 16]),
        (1_000.0, [1, 1, 1, 9, 9, 9, 9, 9]),
        (9_000.0, [1, 1, 1]),
        (70_000.0, [1, 1, 1]),
    ],
)
def test_a_few_bursts_tell_what_a_call_takes_and_fewer_calls_do_if_they_are_slow(
    monkeypatch: pytest.MonkeyPatch, call_us: float, lengths: list[int]
) -> None:
    found, run = make(monkeypatch, Order.KEEP, [])
    slow_at_first = [3e6]

    def run_own(_runner: Any, _worker: Any, draws: list[Any], _protocol: Any) -> Any:
        run.append(len(draws))
        more_us = slow_at_first.pop() if slow_at_first else 0.0
        return SimpleNamespace(took_us=100.0 + len(draws) * call_us + more_us)

    monkeypatch.setattr(costs, "run_own", run_own)
    monkeypatch.setattr(costs, "took_us", lambda bursts: [each.took_us for each in bursts])
    assert found._call_us(REFERENCE, 16, 100.0) == pytest.approx(call_us, rel=0.02)
    assert run == lengths


def test_bursts_that_a_busy_machine_spoilt_are_not_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt = [500.0 + 100.0 * number for number in range(EMPTY_BURSTS)]
    found, run = make(monkeypatch, Order.KEEP, [*spoilt, 500.0, 500.0, *[700.0] * 20])
    found.empty_us(8, REFERENCE)
    assert len(run) == EMPTY_BURSTS + 2


def test_the_search_ends_on_a_machine_that_never_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    times = [100.0 * 1.5**number for number in range(MAX_EMPTY_BURSTS + 1)]
    found, run = make(monkeypatch, Order.CHAIN, times + [90.0] * EMPTY_BURSTS)
    assert found.empty_us(8, REFERENCE) == 100.0
    assert run.count(8) == MAX_EMPTY_BURSTS


def test_a_burst_of_one_call_bounds_the_cost_if_long_bursts_never_agree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spoilt = [3000.0 * 1.5**number for number in range(MAX_EMPTY_BURSTS)]
    found, run = make(monkeypatch, Order.CHAIN, [*spoilt, *[10.0] * EMPTY_BURSTS])
    assert found.empty_us(8, REFERENCE) == 80.0
    assert run.count(1) == EMPTY_BURSTS


@pytest.mark.parametrize(("copied_us", "each_us"), [(580.0, 10.0), (490.0, 0.0)])
def test_a_copy_costs_what_it_adds_to_most_bursts_of_the_reference(
    monkeypatch: pytest.MonkeyPatch, copied_us: float, each_us: float
) -> None:
    pairs = [(500.0, copied_us), (500.0, copied_us), (500.0, 9000.0)] * 2
    found, run = make(monkeypatch, Order.KEEP, [each for pair in pairs for each in pair])
    assert found.copying_us(REFERENCE, 8) == each_us
    assert set(run) == {8}
