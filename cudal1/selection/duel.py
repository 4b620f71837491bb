"""The comparison of two policies: evidence from pairs, and the probability of a wrong result.

A pair is one problem that both answered: the mean reward of the challenger's answers to it less
that of the champion's. Each reward is counted up to a limit B, so that a pair lies in [-B, B].
Pairs are of independent problems. "Better" means that the expected pair is above 0.

The evidence is a betting martingale (Waudby-Smith and Ramdas, "Estimating means of bounded random
variables by betting", 2023). A gambler starts with 1 and bets at fair odds against "the expected
pair is at most g"; after some pairs the gambler is worth W. If that claim is true, the chance of
*ever* being worth 1/alpha is at most alpha (Ville's inequality). So one may look after each pair
and stop at any time, and nothing is assumed of the pairs' distribution. Several bets of different
size are held at once, and none is changed on the way: the order of the pairs does not matter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from statistics import fmean
from typing import Final

from cudal1.record import Record

BETS: Final = (0.05, 0.1, 0.2, 0.4, 0.7, 0.95)
"""Shares of the largest bet that is never ruinous: small ones for small gains in much noise."""
_PRECISION: Final = 1e-4
"""Precision of a bound, as a share of the limit."""


class Outcome(StrEnum):
    """The outcome of a challenger's duel."""

    BETTER = "better"
    """The challenger is certified to be better: promote it."""
    NOT_CERTIFIED = "not_certified"
    """Every problem was used up, and the evidence was too weak."""
    WORSE = "worse"
    """The challenger is certified to be worse: no more problems were spent on it."""
    IDENTICAL = "identical"
    """The challenger is the champion: there was nothing to learn."""


class Duel(Record):
    """The result of a duel."""

    outcome: Outcome
    num_pairs: int
    gain: float
    """Mean pair: the additional reward of a challenger's answer; 0 without pairs."""
    lower: float
    """The expected pair is below this with probability `alpha` at most."""
    upper: float
    """The expected pair is above this with probability `alpha` at most."""
    alpha: float
    """Probability of `better` for a challenger that is no better."""


def evidence(pairs: Sequence[float], *, above: float, limit: float) -> float:
    """Return the log of the worth of bets against "the expected pair is at most `above`".

    The logarithm is natural.

    Raises:
        ValueError: a pair outside of [-limit, limit], or `above` that is not inside of it.
    """
    if any(abs(pair) > limit for pair in pairs) or not -limit < above < limit:
        raise ValueError(f"pairs and bound must lie within {limit}")
    # the largest bet: the one that a pair of -limit would lose completely
    returns = [(pair - above) / (limit + above) for pair in pairs]
    worths = [math.fsum(math.log1p(bet * gained) for gained in returns) for bet in BETS]
    best = max(worths)
    return best + math.log(fmean(math.exp(worth - best) for worth in worths))


def lower_bound(pairs: Sequence[float], *, alpha: float, limit: float) -> float:
    """Return a bound that the expected pair is below with probability `alpha` at most.

    -limit says nothing. The bound holds for these pairs alone; a caller that looks after each pair
    may keep the highest bound seen.
    """
    wanted = math.log(1 / alpha)
    low, high = -limit, limit  # the evidence falls as the claim rises
    while high - low > _PRECISION * limit:
        middle = (low + high) / 2
        if evidence(pairs, above=middle, limit=limit) >= wanted:
            low = middle
        else:
            high = middle
    return low


def verdict_of(pairs: Sequence[float], *, alpha: float, limit: float, is_last: bool) -> Duel | None:
    """Return the result of a duel after some pairs; None: go on.

    Args:
        pairs: one for each problem.
        alpha: probability of a false `better`, over the whole duel.
        limit: B.
        is_last: whether there are no more problems.
    """
    mirrored = [-pair for pair in pairs]
    wanted = math.log(1 / alpha)
    if evidence(pairs, above=0.0, limit=limit) >= wanted:
        outcome = Outcome.BETTER
    elif evidence(mirrored, above=0.0, limit=limit) >= wanted:
        outcome = Outcome.WORSE
    elif is_last:
        outcome = Outcome.NOT_CERTIFIED
    else:
        return None
    return Duel(
        outcome=outcome,
        num_pairs=len(pairs),
        gain=fmean(pairs) if pairs else 0.0,
        alpha=alpha,
        lower=lower_bound(pairs, alpha=alpha, limit=limit),
        upper=-lower_bound(mirrored, alpha=alpha, limit=limit),
    )


def identical(*, alpha: float) -> Duel:
    """Return the result for a challenger that is the champion: nothing was judged."""
    return Duel(outcome=Outcome.IDENTICAL, num_pairs=0, gain=0.0, lower=0.0, upper=0.0, alpha=alpha)


def nights_alpha(alpha: float, *, challenge: int) -> float:
    """Return the share of a reign's error that its challenge number 1, 2, … may spend.

    A champion reigns until it is replaced, and meets a challenger every night. Shares of 1/(k(k+1))
    add up to 1. So the probability of *ever* losing its place to a challenger that is no better is
    at most `alpha`, however long it reigns. Then the next reign begins, with an `alpha` of its own.
    """
    return alpha / (challenge * (challenge + 1))
