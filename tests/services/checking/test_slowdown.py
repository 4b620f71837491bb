"""Tests that the test for a slowdown is exact, has its error, and finds what it says it finds."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from statistics import stdev

import pytest

from cudal1.services.checking import slowdown
from cudal1.services.checking.slowdown import ALPHA, BASELINE, MARGIN, SERIES


def by_counting(new: Sequence[float], old: Sequence[float]) -> float:
    """Return the p-value by trying all ways in which new ones may lie among all."""
    raised = [each / (1 - MARGIN) for each in new]
    wins = sum(n >= o for n in raised for o in old)
    every = range(len(new) + len(old))
    low = total = 0
    for places in itertools.combinations(every, len(new)):
        olds = [place for place in every if place not in places]
        low += sum(n > o for n in places for o in olds) <= wins
        total += 1
    return low / total


@pytest.mark.parametrize("seed", range(20))
def test_the_p_value_is_that_of_counting_all_orders(seed: int) -> None:
    rng = random.Random(seed)
    old = [rng.gauss(1.5, 0.02) for _ in range(5)]
    new = [rng.gauss(1.48, 0.02) for _ in range(4)]
    assert slowdown.p_value(new, old) == pytest.approx(by_counting(new, old))


def test_a_machine_that_is_slower_for_both_changes_nothing() -> None:
    rng = random.Random(1)
    old = [rng.gauss(1.5, 0.02) for _ in range(BASELINE)]
    assert not slowdown.seems_slower(old, old)
    assert slowdown.p_value(old[:SERIES], old) > 0.5


@pytest.mark.parametrize("slower", [0.0, MARGIN])
def test_alarms_are_as_rare_as_promised(slower: float) -> None:
    rng = random.Random(2)
    tries, level = 4000, 0.05  # at a level at which there are enough to count
    alarms = 0
    for _ in range(tries):
        old = [rng.gauss(0, 0.02) for _ in range(BASELINE)]
        new = [rng.gauss(math.log1p(-slower), 0.02) for _ in range(SERIES)]
        p = slowdown.p_value([math.exp(each) for each in new], [math.exp(each) for each in old])
        alarms += p <= level
    allowed = level if slower else level / 2
    assert alarms <= tries * allowed + 4 * math.sqrt(tries * allowed)


@pytest.mark.parametrize("spread", [0.005, 0.012, 0.03])
def test_a_detectable_slowdown_is_found(spread: float) -> None:
    rng = random.Random(3)
    shape = (-1.4, -0.9, -0.6, -0.35, -0.1, 0.1, 0.35, 0.6, 0.9, 1.4)
    typical = [spread * each / stdev(shape) for each in shape]
    said = slowdown.detectable([math.exp(each) for each in typical])
    assert said is not None
    found, tries = 0, 400
    for _ in range(tries):
        old = [math.exp(rng.gauss(0, spread)) for _ in range(BASELINE)]
        found += all(
            slowdown.p_value(
                [math.exp(rng.gauss(0, spread)) / (1 + said) for _ in range(SERIES)], old
            )
            <= ALPHA
            for _ in range(2)
        )
    assert found >= 0.93 * tries


def test_the_shortest_baseline_can_reach_the_level_and_a_shorter_cannot() -> None:
    new = [1.0] * SERIES
    assert slowdown.p_value(new, [2.0] * slowdown.LEAST_BASELINE) <= ALPHA
    assert slowdown.p_value(new, [2.0] * (slowdown.LEAST_BASELINE - 1)) > ALPHA
    assert slowdown.detectable([1.0, 1.1]) is None
