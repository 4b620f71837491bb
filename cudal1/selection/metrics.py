"""The numbers of the paper's tables, from one best speedup per problem.

A failed problem counts as 0 or as 1, by `failed_as`. The paper's table 5 uses the first convention,
tables 4 and 6 the second. So every caption must name its convention (paper 6.4).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, quantiles

from cudal1.record import Record

MEANINGFUL_SPEEDUP = 1.01
"""A speedup counts when it is above this (paper 2.1, v6 on)."""


class SpeedupSummary(Record):
    """One row of a table like the paper's table 4."""

    num_problems: int
    failed_as: float
    mean: float
    maximum: float
    percentile_75: float
    median: float
    percentile_25: float
    geometric_mean: float
    """Geometric mean over successful problems only; 1.0 when there is none."""
    num_successful: int
    num_meaningful: int
    """Number of successful problems above `MEANINGFUL_SPEEDUP`."""


def summarize(speedups: Sequence[float | None], *, failed_as: float) -> SpeedupSummary:
    """Return the row for the best speedup of each problem; None is a problem without success.

    Raises:
        ValueError: no problems at all.
    """
    if not speedups:
        raise ValueError("no problems to summarize")
    counted = [failed_as if value is None else value for value in speedups]
    successful = [value for value in speedups if value is not None]
    quarter, half, three_quarters = (
        quantiles(counted, n=4, method="inclusive") if len(counted) > 1 else counted * 3
    )
    return SpeedupSummary(
        num_problems=len(speedups),
        failed_as=failed_as,
        mean=fmean(counted),
        maximum=max(counted),
        percentile_75=three_quarters,
        median=half,
        percentile_25=quarter,
        geometric_mean=math.exp(fmean(math.log(value) for value in successful))
        if successful
        else 1.0,
        num_successful=len(successful),
        num_meaningful=sum(value > MEANINGFUL_SPEEDUP for value in successful),
    )


def fast_p(speedups: Sequence[float | None], p: float) -> float:
    """Return the share of problems with a success faster than p times (KernelBench)."""
    if not speedups:
        raise ValueError("no problems to count")
    return sum(value is not None and value > p for value in speedups) / len(speedups)


def excess_share(speedups: Sequence[float | None], count: int) -> float | None:
    """Return the `count` largest problems' share of all excess above 1; None without excess.

    A mean that rests on a few problems says little about the others (paper 6.4).
    """
    excess = sorted(value - 1 for value in speedups if value is not None and value > 1)
    return math.fsum(excess[-count:]) / math.fsum(excess) if excess and count else None
