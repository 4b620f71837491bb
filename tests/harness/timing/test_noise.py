"""Luck, heat and sums of scores earn nothing: entries of the catalogue that are no code."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from cudal1.harness.timing import statistics
from cudal1.protocol import EvalProtocol
from tests.harness.conftest import QUICK

NUM_RUNS = 300


def _measured(quad: Callable[[int], float], protocol: EvalProtocol = QUICK) -> float:
    """Return what a series of log-ratios earns, stopped as a judge stops it."""
    ratios: list[float] = []
    while not (ratios and statistics.is_done(ratios, protocol)):
        ratios.append(quad(len(ratios)))
    return statistics.reading(ratios, protocol)


def _quad(rng: random.Random, speed_at: Callable[[float], float]) -> Callable[[int], float]:
    """Return quads of two equal programs on a clock that changes its speed; the order is drawn."""

    def quad(number: int) -> float:
        times = [
            math.exp(rng.gauss(0, 0.005)) / speed_at(number + position / 4) for position in range(4)
        ]
        pairs = (times[0], times[3]), (times[1], times[2])
        return statistics.log_ratio(*(pairs if rng.random() < 0.5 else pairs[::-1]))

    return quad


@pytest.mark.parametrize(
    "speed_at",
    [
        lambda t: 1.3 if t < 4 else 1.0,  # a boost that ends
        lambda t: 1.0 + 0.01 * t,  # it warms up
        lambda t: 1.0 if t % 1 else 0.9,  # the first burst of each quad is slow
        lambda t: 1.0 + 0.2 * math.sin(40 * t),
    ],
    ids=["boost", "drift", "first_is_slow", "waves"],
)
def test_clocks_that_rise_and_fall_earn_nothing(speed_at: Callable[[float], float]) -> None:
    rng = random.Random(23)
    gains = sum(_measured(_quad(rng, speed_at)) > 1 for _ in range(NUM_RUNS))
    assert gains <= QUICK.alpha * NUM_RUNS


def test_the_luckiest_of_many_clones_earns_nothing() -> None:
    rng = random.Random(24)
    noisy = QUICK.model_copy(update={"max_bucket_variance": 10.0})  # not even the gate helps
    clones = [
        max(_measured(lambda _: rng.gauss(0, 0.1), noisy) for _ in range(16)) for _ in range(100)
    ]
    # each of the sixteen may be certified with probability alpha
    assert sum(best > 1 for best in clones) <= 16 * QUICK.alpha * len(clones)
    assert max(clones) < 1.2


def test_one_impossible_case_is_clipped_to_the_highest_claim() -> None:
    """Otherwise it would carry the geometric mean of all others."""
    assert _measured(lambda _: math.log(1e9)) <= QUICK.max_claim
