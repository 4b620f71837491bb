"""Decide whether a kept version is slower than proven, from speedups of fresh processes.

Each measurement in fresh processes of reference and version gives one speedup. Two processes that
run the same code differ by some per cent, which no bound within one process covers. So the speedups
of several processes are compared: those of the record with those of today. Both are ratios to the
reference measured at the same time, so a slower machine of the same kind changes neither.

The test is exact. If nothing is slower by more than `MARGIN`, all orders of old and new speedups
are equally likely (Mann and Whitney, "On a test of whether one of two random variables is
stochastically larger than the other", 1947). It assumes no distribution. A machine that favours one
of the two codes today more than on the day of the record breaks the assumption; the margin stands
against that. All functions are pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import median, stdev
from typing import Final

ALPHA: Final = 0.001
"""Probability that a version that is not slower by more than `MARGIN` is called slower."""
MARGIN: Final = 0.01
"""Slowdown that is none: the share of its speed that a version may lose. Processors, libraries and
neighbours favour one code or the other by so much."""
BASELINE: Final = 10
"""Speedups that a record has for comparison, one a pair of fresh processes."""
SERIES: Final = 8
"""Speedups of a series; two series must say "slower"."""
LEAST_BASELINE: Final = 5
"""Fewest speedups of a record with which a series can reach `ALPHA`."""
FOUND: Final = 0.95
"""Probability with which a slowdown of `detectable` is found."""
SPREADS: Final = 3.1
"""Slowdown beyond the margin, in standard deviations of the speedups' logarithms, that both series
find with probability `FOUND`. Simulated: 3,000 tries of normal noise found 95.4 % of them."""


def seems_slower(speedups: Sequence[float], proven: Sequence[float]) -> bool:
    """Return whether a few speedups call for more: their median is lower by more than `MARGIN`.

    Looking no further costs power alone, and raises no alarm.
    """
    return median(speedups) < median(proven) * (1 - MARGIN)


def p_value(speedups: Sequence[float], proven: Sequence[float]) -> float:
    """Return the probability of speedups as low as these, if none is lower by more than `MARGIN`.

    Ties count against "slower".
    """
    raised = [speedup / (1 - MARGIN) for speedup in speedups]
    wins = sum(new >= old for new in raised for old in proven)
    orders = math.comb(len(speedups) + len(proven), len(proven))
    return sum(_orders(len(speedups), len(proven), count) for count in range(wins + 1)) / orders


@cache
def _orders(num_new: int, num_old: int, wins: int) -> int:
    """Return the number of orders in which new ones lie above old ones in so many pairs."""
    if wins < 0 or num_new < 0 or num_old < 0:
        return 0
    if num_new == 0 or num_old == 0:
        return int(wins == 0)
    # the largest is a new one, above all old ones, or an old one
    return _orders(num_new - 1, num_old, wins - num_old) + _orders(num_new, num_old - 1, wins)


def detectable(proven: Sequence[float]) -> float | None:
    """Return the least slowdown that is found with probability `FOUND`, from a record's spread.

    It is a share: 0.04 is a version that needs 1.04 times its time. None without enough speedups.
    """
    if len(proven) < LEAST_BASELINE:
        return None
    spread = stdev(math.log(speedup) for speedup in proven)
    # fewer than `BASELINE` speedups locate the record's median less well
    fewer = math.sqrt((1 / len(proven) + 1 / SERIES) / (1 / BASELINE + 1 / SERIES))
    return math.expm1(SPREADS * fewer * spread - math.log(1 - MARGIN))
