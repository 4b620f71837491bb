"""Which rule orders the bursts, ends the timing and reads it: ours or the paper's.

Both are run by the same examination on the same clock; they differ only here.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cudal1.harness import fixed_window, statistics
from cudal1.measurement import Role
from cudal1.protocol import EvalProtocol, Rule


@dataclass(frozen=True)
class Reading:
    """What a finished series of log-ratios says; the fields are those of `Measurement`."""

    speedup: float
    certified: float
    alpha: float | None
    lower: float | None
    upper: float | None
    buckets: tuple[float, ...]
    bucket_variance: float
    is_stable: bool


def draw_order(rng: random.Random, protocol: EvalProtocol) -> tuple[Role, ...]:
    """Whose bursts come one after the other: a quad ABBA or BAAB; under `paper` a pair."""
    first, second = rng.sample((Role.REFERENCE, Role.CANDIDATE), 2)
    return (first, second) if protocol.rule is Rule.PAPER else (first, second, second, first)


def is_done(ratios: Sequence[float], elapsed_s: float, protocol: EvalProtocol) -> bool:
    """Whether timing has ended, after so many log-ratios and so long a time."""
    if protocol.rule is Rule.PAPER:
        return fixed_window.is_done(len(ratios), elapsed_s, protocol)
    return bool(ratios) and statistics.is_done(ratios, protocol)


def is_undecided(ratios: Sequence[float], protocol: EvalProtocol) -> bool:
    """Whether as many log-ratios as might certify a gain have just come, and certify none."""
    if protocol.rule is not Rule.CERTIFIED or len(ratios) != protocol.min_quads:
        return False
    return read(ratios, protocol).certified <= 1.0


def read(ratios: Sequence[float], protocol: EvalProtocol) -> Reading:
    """What the log-ratios say, by the protocol's rule."""
    if protocol.rule is Rule.PAPER:
        means = fixed_window.bucket_means(ratios, num_buckets=protocol.num_buckets)
        return Reading(
            speedup=median(means), certified=fixed_window.reading(ratios, protocol), alpha=None,
            lower=None, upper=None, buckets=means,
            bucket_variance=statistics.bucket_variance(means),
            is_stable=fixed_window.is_steady(means, max_variance=protocol.max_bucket_variance),
        )  # fmt: skip
    medians = statistics.bucket_medians(ratios, num_buckets=protocol.num_buckets)
    lower, upper = statistics.interval(ratios, alpha=protocol.alpha)
    return Reading(
        speedup=median(medians), certified=statistics.reading(ratios, protocol),
        alpha=protocol.alpha, lower=lower, upper=upper, buckets=medians,
        bucket_variance=statistics.bucket_variance(medians),
        is_stable=statistics.is_stable(ratios, protocol),
    )  # fmt: skip
