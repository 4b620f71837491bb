"""One row of speedups over problems, as cells, and the sentences of captions about such rows.

Every table of speedups is made of these cells, so that all count alike. A table with a column for
each device turns them by a right angle. Counting is `cudal1.selection.metrics`.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from collections.abc import Callable, Sequence

from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import percent, share, times
from cudal1.report.tables.table import Table
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP, excess_share, fast_p, summarize

LARGEST = 5
"""Problems that alone may carry a mean."""
AS_ONE, AS_ZERO = 1.0, 0.0
"""Speedup that a problem without success counts as: in the paper's tables 4 and 6, and in its table
5."""
MEAN = "Mean"
NULL_TEST = (
    "Null test: each reference judged as if it were a candidate, so every true speedup is 1×."
)


def statistics(thresholds: Sequence[float]) -> tuple[str, ...]:
    """Return the names of the cells."""
    return (
        "Count",
        MEAN,
        "Max",
        "75 %",
        "Median",
        "25 %",
        "Success",
        f"> {MEANINGFUL_SPEEDUP:g}×",
        "Geo. mean",
        *(f"fast_{p:g}" for p in thresholds),
        f"Top {LARGEST}",
    )


def cells(
    speedups: Sequence[float | None], thresholds: Sequence[float], failed_as: float
) -> tuple[str, ...]:
    """Return the cells of problems' best speedups, None where nothing succeeded.

    The cells are dashes if there is no problem.
    """
    if not speedups:
        return ("0", *("–",) * (len(statistics(thresholds)) - 1))
    row = summarize(speedups, failed_as=failed_as)
    count = row.num_problems
    is_telling = sum(value is not None and value > 1 for value in speedups) > LARGEST
    carried = excess_share(speedups, LARGEST) if is_telling else None
    return (
        f"{count:,}",
        times(row.mean),
        times(row.maximum),
        times(row.percentile_75),
        times(row.median),
        times(row.percentile_25),
        share(row.num_successful, count),
        share(row.num_meaningful, count),
        times(row.geometric_mean if row.num_successful else None),
        *(percent(fast_p(speedups, p)) for p in thresholds),
        "–" if carried is None else percent(carried),
    )


def both(build: Callable[[float], Table]) -> tuple[Table, ...]:
    """Return the table by each convention for failures; where it has no rows, once."""
    first, second = build(AS_ONE), build(AS_ZERO)
    return (first, second) if first.rows else (first,)


def titled(title: str, failed_as: float) -> str:
    """Return a title that says by which convention the table counts."""
    return f"{title}, a failure as {failed_as:g}×"


def failures(failed_as: float) -> str:
    """Return the convention, as a sentence of a caption."""
    if failed_as == AS_ONE:
        return (
            "A problem without success counts as 1× in mean, maximum and percentiles, as in the "
            "paper's tables 4 and 6; the table that follows counts it as 0×. A success and fast_p "
            "need a correct candidate, and the geometric mean is of successes."
        )
    return (
        "The table above by the other convention: a problem without success counts as 0× in mean, "
        "maximum and percentiles, as in the paper's table 5. All else counts successes only, and "
        "is the same."
    )


def null_note(given: ReportInput) -> str:
    """Return a sentence about the row of the null test, or about its absence."""
    if facts.null_speedups(given):
        return NULL_TEST
    where = given.provenance
    return (
        f"No null test was run on {where.device_kind} under protocol {where.protocol.id}, so "
        "nothing here says how far off the harness itself is."
    )
