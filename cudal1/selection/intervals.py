"""Means over problems, and paired differences of two means, with 95 % intervals.

Problems differ more than answers do. So both policies of a pair answer the same problems, a
problem's answers count as their mean, and the interval is a bootstrap's over problems (Efron and
Tibshirani, "An introduction to the bootstrap", 1993, chapter 13: the percentile interval). It
covers other problems and other answers of the same kind. It does not cover another training.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean, quantiles

from cudal1.record import Record

NUM_RESAMPLES = 2000
"""Bootstrap samples of the problems; the ends of an interval are then known within 3 % of its
width."""


class Interval(Record):
    """A mean over problems with its 95 % interval."""

    value: float
    low: float
    high: float
    num_problems: int

    @property
    def is_above(self) -> bool:
        """Return whether the whole interval is above 0."""
        return self.low > 0

    @property
    def is_below(self) -> bool:
        """Return whether the whole interval is below 0."""
        return self.high < 0


def mean(rewards: Mapping[str, Sequence[float]], *, seed: int = 0) -> Interval | None:
    """Return the mean over problems of the means of their answers; None below two problems.

    Args:
        rewards: the answers' numbers by problem, at least one each.
        seed: of the bootstrap.
    """
    return _interval([fmean(rewards[problem]) for problem in sorted(rewards)], seed=seed)


def difference(
    rewards: Mapping[str, Sequence[float]], to: Mapping[str, Sequence[float]], *, seed: int = 0
) -> Interval | None:
    """Return how much larger the first mean is over the common problems; None below two of them.

    Args:
        rewards: the answers' numbers by problem, at least one each.
        to: those that are subtracted, problem by problem.
        seed: of the bootstrap.
    """
    common = sorted(rewards.keys() & to.keys())
    pairs = [fmean(rewards[problem]) - fmean(to[problem]) for problem in common]
    return _interval(pairs, seed=seed)


def _interval(values: Sequence[float], *, seed: int) -> Interval | None:
    if len(values) < 2:
        return None
    rng = random.Random(seed)
    drawn = [fmean(rng.choices(values, k=len(values))) for _ in range(NUM_RESAMPLES)]
    cuts = quantiles(drawn, n=40, method="inclusive")
    return Interval(value=fmean(values), low=cuts[0], high=cuts[-1], num_problems=len(values))
