"""Apply the paper's own protocol: pairs for a fixed time, buckets, and a reading without a bound.

All functions are pure, so that the protocol can be compared with ours on the same clock. What the
paper leaves open (docs/timing.md) is decided here. Buckets are consecutive in time, the variance is
the sample's, and a rejected measurement earns 1.00. Threat: none of this bounds the chance of a
false gain; `statistics` does.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import fmean, median, variance

from cudal1.harness.timing.statistics import conservative
from cudal1.protocol import EvalProtocol


def scores(ratios: Sequence[float]) -> list[float]:
    """Return single-run scores (paper equation 2) of log-ratios: reference over candidate time."""
    return [math.exp(ratio) for ratio in ratios]


def bucket_means(ratios: Sequence[float], *, num_buckets: int) -> tuple[float, ...]:
    """Return the mean score in each of up to `num_buckets` buckets (paper 2.4.4)."""
    count, values = min(num_buckets, len(ratios)), scores(ratios)
    edges = [round(i * len(values) / count) for i in range(count + 1)]
    return tuple(fmean(values[first:last]) for first, last in itertools.pairwise(edges))


def is_steady(means: Sequence[float], *, max_variance: float) -> bool:
    """Return whether the variance gate holds (paper 2.4.4: 0.005), absolute at any speedup."""
    return len(means) > 1 and variance(means) <= max_variance


def is_done(num_pairs: int, elapsed_s: float, protocol: EvalProtocol) -> bool:
    """Return whether the window is over; no sooner than every bucket has a pair."""
    assert protocol.window_s is not None
    return elapsed_s >= protocol.window_s and num_pairs >= protocol.num_buckets


def reading(ratios: Sequence[float], protocol: EvalProtocol) -> float:
    """Return the reward: the median bucket mean (paper equation 3), two decimals toward 1.00."""
    means = bucket_means(ratios, num_buckets=protocol.num_buckets)
    if not is_steady(means, max_variance=protocol.max_bucket_variance):
        return 1.0
    return max(0.01, conservative(median(means)))
