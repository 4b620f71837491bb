"""What bursts took and computed is told by those that are alike."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.harness.spent import Spent
from cudal1.measurement import Role

COUNT = 4


def burst(call_us: float, *, count: int = COUNT, worked_us: float = 0.0) -> Any:
    """One whose calls take and compute so much."""
    return SimpleNamespace(
        draws=[None] * count, elapsed_us=count * call_us, worked_us=count * worked_us
    )


def test_the_mean_of_all_bursts_is_held_against_their_median() -> None:
    spent = Spent()
    for number in range(20):
        spent.add(burst(120.0 if number == 3 else 100.0), burst(1000.0 if number == 7 else 100.0))
    assert spent.uneven_us(0) == pytest.approx(900.0 / 20 - 20.0 / 20)


def test_those_that_come_later_are_told_apart() -> None:
    spent = Spent()
    for call_us in (100.0, 100.0, 1000.0, 50.0, 50.0):
        spent.add(burst(100.0), burst(call_us))
    assert spent.uneven_us(3) == 0.0


def test_longer_bursts_are_held_against_longer_ones() -> None:
    spent = Spent()
    for count, call_us in ((COUNT, 100.0), (3 * COUNT, 60.0)) * 5:
        spent.add(burst(call_us, count=count), burst(call_us, count=count))
    assert spent.uneven_us(0) == 0.0


def test_a_reference_that_is_uneven_itself_excuses_nobody_beyond_that() -> None:
    spent = Spent()
    for call_us in (100.0, 100.0, 400.0):
        spent.add(burst(call_us), burst(call_us + 10.0))
    assert spent.uneven_us(0) == pytest.approx(0.0)


def test_what_was_computed_is_the_median_of_bursts_of_one_length() -> None:
    spent = Spent()
    for count, worked_us in ((COUNT, 7.0), (COUNT, 9.0), (COUNT, 500.0), (2 * COUNT, 1.0)):
        spent.add(
            burst(1.0, count=count, worked_us=2 * worked_us),
            burst(1.0, count=count, worked_us=worked_us),
        )
    assert spent.worked_us(Role.CANDIDATE, COUNT) == 9.0
    assert spent.worked_us(Role.REFERENCE, COUNT) == 18.0
