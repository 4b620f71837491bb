"""Choose the rule that orders the bursts, ends the timing and reads it: ours or the paper's.

The same examination runs both on the same clock; they differ only here.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cudal1.harness.timing import fixed_window, statistics
from cudal1.measurement import Role
from cudal1.protocol import EvalProtocol, Rule

CONFIRMING = 5
"""Least number of log-ratios of a second measurement: the first one has an error of `alpha`
already."""
SOON = 0.1
"""Relative distance within which a few log-ratios agree with what they bear out: their estimate is
then all that is known. A candidate that agrees less well is measured to the end."""
LONG_S = 5.0
"""Seconds of timing after which what is certain suffices. A bound holds whenever measuring ends."""
CLEAR = 1.25
"""Speedup or slowdown from which pairs tell a candidate apart, without quads, where bursts differ
by some per cent."""


@dataclass(frozen=True)
class Reading:
    """The result of a finished series of log-ratios; the fields are those of `Measurement`."""

    speedup: float
    certified: float
    alpha: float | None
    lower: float | None
    upper: float | None
    buckets: tuple[float, ...]
    bucket_variance: float
    is_stable: bool


def draw_order(
    rng: random.Random, protocol: EvalProtocol, *, in_pairs: bool = False
) -> tuple[Role, ...]:
    """Draw the roles of bursts in a row: a quad ABBA or BAAB; under `paper` a pair.

    Other rules may take pairs as well: what comes first is a fair coin in both. A quad cancels what
    drifts meanwhile, which matters to small gains.
    """
    first, second = rng.sample((Role.REFERENCE, Role.CANDIDATE), 2)
    is_pair = in_pairs or protocol.rule is Rule.PAPER
    return (first, second) if is_pair else (first, second, second, first)


def is_clear(ratios: Sequence[float]) -> bool:
    """Return whether every quad so far says that the candidate is much faster."""
    return bool(ratios) and min(ratios) > math.log(CLEAR)


def takes_pairs(ratios: Sequence[float], protocol: EvalProtocol, *, are_bursts_alike: bool) -> bool:
    """Return whether pairs suffice, in half the time of quads; under `paper` there are no quads.

    Pairs suffice once only a loss may still be shown, which need not be known as exactly as a gain.

    Args:
        ratios: log-ratios so far.
        protocol: the settings of the judgement.
        are_bursts_alike: true if bursts differ by some per cent only, as on a GPU: then pairs
            suffice for a clear gain, too.
    """
    if protocol.rule is Rule.PAPER:
        return True
    if not ratios:
        return False
    if are_bursts_alike and is_clear(ratios):
        return True
    return max(ratios) < -math.log(CLEAR) or statistics.is_given_up(ratios, protocol)


def is_done(ratios: Sequence[float], elapsed_s: float, protocol: EvalProtocol) -> bool:
    """Return whether timing has ended, after so many log-ratios and so long a time."""
    if protocol.rule is Rule.PAPER:
        return fixed_window.is_done(len(ratios), elapsed_s, protocol)
    if not ratios:
        return False
    return statistics.is_done(ratios, protocol, is_long=elapsed_s > LONG_S)


def bears_out(ratios: Sequence[float], expected: float | None, protocol: EvalProtocol) -> bool:
    """Return whether enough log-ratios agree with a speedup that was certified before."""
    if expected is None or len(ratios) < CONFIRMING or protocol.rule is not Rule.CERTIFIED:
        return False
    said = read(ratios, protocol)
    return said.is_stable and abs(said.speedup / expected - 1) <= min(SOON, protocol.confirm_within)


def is_undecided(ratios: Sequence[float], protocol: EvalProtocol) -> bool:
    """Return whether just enough log-ratios to certify a gain have come and leave it open."""
    if protocol.rule is not Rule.CERTIFIED or len(ratios) != protocol.min_quads:
        return False
    is_certified = read(ratios, protocol).certified > 1.0
    return not is_certified and not statistics.is_given_up(ratios, protocol)


def read(ratios: Sequence[float], protocol: EvalProtocol) -> Reading:
    """Read the log-ratios, by the protocol's rule."""
    if protocol.rule is Rule.PAPER:
        means = fixed_window.bucket_means(ratios, num_buckets=protocol.num_buckets)
        return Reading(
            speedup=median(means),
            certified=fixed_window.reading(ratios, protocol),
            alpha=None,
            lower=None,
            upper=None,
            buckets=means,
            bucket_variance=statistics.bucket_variance(means),
            is_stable=fixed_window.is_steady(means, max_variance=protocol.max_bucket_variance),
        )
    medians = statistics.bucket_medians(ratios, num_buckets=protocol.num_buckets)
    lower, upper = statistics.interval(ratios, alpha=protocol.alpha)
    return Reading(
        speedup=median(medians),
        certified=statistics.reading(ratios, protocol),
        alpha=protocol.alpha,
        lower=lower,
        upper=upper,
        buckets=medians,
        bucket_variance=statistics.bucket_variance(medians),
        is_stable=statistics.is_stable(ratios, protocol),
    )
