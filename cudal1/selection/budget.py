"""Best so far: what a method has found after each answer that it may have, and comparisons of that.

A user has something of the best candidate that was found, and pays for every verdict. So methods
are compared by the best of a problem's first n answers, at equal n: by the last value of that curve
and by its mean over n (the area under it). A failure counts as 0.

*Echo* is the control of all methods that show exemplars: it answers with the best of the first
round, and needs no model.

Shapes: P problems, N answers to each.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from itertools import accumulate
from statistics import fmean, quantiles, stdev

from cudal1.record import Record

Rewards = Mapping[str, Sequence[float]]
"""Each problem's rewards in the order of the answers, 0 for a failure."""
Z = 1.96
"""Quantile of the normal distribution for a 95 % interval of a mean."""
NUM_RESAMPLES = 2000


class Estimate(Record):
    """A mean over problems with half of its 95 % interval."""

    value: float
    half_width: float
    """0 where there are fewer than two problems, and nothing is known."""


class Ratio(Record):
    """A ratio of two means over the same problems with its 95 % interval."""

    value: float
    low: float
    high: float


def best_so_far(rewards_N: Sequence[float]) -> list[float]:
    """Return the best of the first n rewards, for n from 1 to N."""
    return list(accumulate(rewards_N, max))


def end(rewards: Rewards, budget: int) -> Estimate:
    """Return the mean over problems of the best of `budget` answers."""
    return _estimate([_filled(best_so_far(each), budget)[-1] for each in rewards.values()])


def area(rewards: Rewards, budget: int) -> Estimate:
    """Return the mean over problems and numbers of answers of the best so far."""
    return _estimate([fmean(_filled(best_so_far(each), budget)) for each in rewards.values()])


def echo(rewards: Rewards, first_round: int) -> dict[str, list[float]]:
    """Return the rewards of answering with the best of the first round after that round."""
    return {
        problem: [
            *each[:first_round],
            *[max(each[:first_round], default=0.0)] * (len(each) - first_round),
        ]
        for problem, each in rewards.items()
    }


def ratio(rewards: Rewards, to: Rewards, *, seed: int = 0) -> Ratio | None:
    """Return the ratio of two methods' means over their common problems.

    Its interval is a bootstrap's over these problems.

    Args:
        rewards: the numbers to compare, one of each problem; of several, their mean counts.
        to: those that they are divided by.
        seed: of the bootstrap.

    Returns:
        None where no problem is common, or the second mean is 0.
    """
    problems = sorted(rewards.keys() & to.keys())
    mine = [fmean(rewards[problem]) for problem in problems]
    theirs = [fmean(to[problem]) for problem in problems]
    if not problems or math.fsum(theirs) == 0:
        return None
    rng = random.Random(seed)
    drawn: list[float] = []
    for _ in range(NUM_RESAMPLES):
        places = rng.choices(range(len(problems)), k=len(problems))
        below = math.fsum(theirs[i] for i in places)
        if below > 0:
            drawn.append(math.fsum(mine[i] for i in places) / below)
    cuts = quantiles(drawn, n=40, method="inclusive")
    return Ratio(value=math.fsum(mine) / math.fsum(theirs), low=cuts[0], high=cuts[-1])


def _filled(best_N: list[float], budget: int) -> list[float]:
    last = best_N[-1:] or [0.0]
    return [*best_N[:budget], *last * (budget - len(best_N))]


def _estimate(values: Sequence[float]) -> Estimate:
    half = Z * stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return Estimate(value=fmean(values), half_width=half)
