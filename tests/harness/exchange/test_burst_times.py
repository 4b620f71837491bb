"""Times of bursts come from the clock, or where a burst was disturbed from what was computed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.harness.exchange.burst_times import BurstTimes, took_us
from cudal1.measurement import Role

COUNT = 4


def burst(
    call_us: float,
    *,
    count: int = COUNT,
    worked_us: float = 0.0,
    computed_us: float = 0.0,
    outside_us: float = 0.0,
    is_disturbed: bool = False,
) -> Any:
    """Return a burst in which each call takes and computes so much."""
    return SimpleNamespace(
        draws=[None] * count,
        elapsed_us=count * call_us,
        worked_us=count * worked_us,
        computed_us=count * computed_us,
        outside_us=count * outside_us,
        is_disturbed=is_disturbed,
    )


def test_the_clock_times_bursts_that_were_not_disturbed() -> None:
    assert took_us([burst(9.0, computed_us=5.0), burst(7.0)]) == [9.0 * COUNT, 7.0 * COUNT]


@pytest.mark.parametrize("which", [0, 1])
def test_one_disturbed_burst_makes_both_count_by_what_was_computed(which: int) -> None:
    bursts = [burst(900.0, computed_us=us, is_disturbed=i == which) for i, us in enumerate((5, 3))]
    assert took_us(bursts) == [5.0 * COUNT, 3.0 * COUNT]


def test_a_machine_that_disturbs_bursts_makes_no_candidate_uneven() -> None:
    burst_times = BurstTimes()
    for number in range(20):
        lost_us = 5000.0 if number % 4 == 0 else 0.0
        burst_times.add(
            burst(100.0, computed_us=100.0),
            burst(100.0 + lost_us, computed_us=100.0, is_disturbed=lost_us > 0),
        )
    assert burst_times.uneven_us(0) == 0.0


def test_work_outside_is_learned_from_bursts_that_were_not_disturbed() -> None:
    burst_times = BurstTimes()
    assert burst_times.outside_us(COUNT) == 0.0
    for outside_us in (4.0, 6.0, 5.0):
        burst_times.add(burst(1.0), burst(1.0, outside_us=outside_us))
        burst_times.add(burst(1.0), burst(1.0, outside_us=90.0, is_disturbed=True))
        burst_times.add(burst(1.0, count=9), burst(1.0, outside_us=70.0, count=9))
    assert burst_times.outside_us(COUNT) == 5.0


def test_the_mean_of_all_bursts_is_compared_with_their_median() -> None:
    burst_times = BurstTimes()
    for number in range(20):
        burst_times.add(
            burst(120.0 if number == 3 else 100.0), burst(1000.0 if number == 7 else 100.0)
        )
    assert burst_times.uneven_us(0) == pytest.approx(900.0 / 20 - 20.0 / 20)


def test_later_bursts_can_be_judged_apart() -> None:
    burst_times = BurstTimes()
    for call_us in (100.0, 100.0, 1000.0, 50.0, 50.0):
        burst_times.add(burst(100.0), burst(call_us))
    assert burst_times.uneven_us(3) == 0.0


def test_longer_bursts_are_compared_with_longer_ones() -> None:
    burst_times = BurstTimes()
    for count, call_us in ((COUNT, 100.0), (3 * COUNT, 60.0)) * 5:
        burst_times.add(burst(call_us, count=count), burst(call_us, count=count))
    assert burst_times.uneven_us(0) == 0.0


def test_an_uneven_reference_excuses_no_more_than_its_own_unevenness() -> None:
    burst_times = BurstTimes()
    for call_us in (100.0, 100.0, 400.0):
        burst_times.add(burst(call_us), burst(call_us + 10.0))
    assert burst_times.uneven_us(0) == pytest.approx(0.0)


def test_the_worked_time_is_the_median_of_bursts_of_one_length() -> None:
    burst_times = BurstTimes()
    for count, worked_us in ((COUNT, 7.0), (COUNT, 9.0), (COUNT, 500.0), (2 * COUNT, 1.0)):
        burst_times.add(
            burst(1.0, count=count, worked_us=2 * worked_us),
            burst(1.0, count=count, worked_us=worked_us),
        )
    assert burst_times.worked_us(Role.CANDIDATE, COUNT) == 9.0
    assert burst_times.worked_us(Role.REFERENCE, COUNT) == 18.0
