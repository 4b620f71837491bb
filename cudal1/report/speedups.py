"""Speedups over each baseline, as in the paper's table 4, and the baselines themselves.

Counting is `cudal1.metrics`.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from cudal1.baseline import Baseline
from cudal1.metrics import MEANINGFUL_SPEEDUP, excess_share, fast_p, summarize
from cudal1.problem import Split
from cudal1.protocol import EvalProtocol, Rule
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.table import Row, RowKind, Table, percent, share, times
from cudal1.verdict import Status

PAPER_ALL = ("250", "3.12×", "120×", "2.25×", "1.42×", "1.17×", "249 (99.6 %)", "226 (90 %)")
"""The paper's table 4, default baseline, all levels."""
LARGEST = 5
"""Problems that alone may carry a mean."""


def speedup_table(given: ReportInput) -> Table:
    """Like table 4: best certified speedup of each problem, by split and level."""
    thresholds = given.provenance.fast_p
    rows = [
        Row(cells=_speedup_cells(label, frame["certified"].to_list(), thresholds), kind=kind)
        for label, frame, kind in _groups(facts.best(given))
    ]
    null = facts.null_speedups(given)
    if rows and null:
        rows.append(Row(
            cells=_speedup_cells("Null test", null, thresholds), kind=RowKind.NULL_TEST
        ))  # fmt: skip
    if rows:
        blanks = ("–",) * (4 + len(thresholds))
        rows.append(Row(cells=("Paper", *PAPER_ALL, *blanks), kind=RowKind.PAPER))
    return Table(
        title="Speedup over the reference (as table 4)",
        caption=(
            "Best certified speedup of each problem, against the eager reference on "
            f"{given.provenance.device_kind}: {_meaning(given.provenance.protocol)}. A problem "
            "without success counts as 1× in mean, maximum and percentiles, as in the paper's "
            "tables 4 and 6; the last two columns count it as 0×, as in its table 5. The "
            "geometric mean is over successful problems only; a success and fast_p need a "
            f"correct candidate under either convention. Top {LARGEST}: the share of all that "
            "lies above 1× that so many problems carry; where it is large, the mean says little "
            "about the others. Null test: each reference judged as if "
            "it were a candidate. Paper: 250 KernelBench problems on an A100, whose times carry "
            "no bound; other problems and another device, so for orientation only."
        ),
        columns=_columns("Problems", thresholds),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no problem was admitted.",
    )


def over_baselines(given: ReportInput) -> Table:
    """The same over every other baseline, of the problems that it can run."""
    thresholds = given.provenance.fast_p
    null = facts.null_speedups(given)
    rows: list[Row] = []
    for baseline in Baseline:
        if baseline is Baseline.EAGER:
            continue
        for label, frame, kind in _groups(facts.best_over(given, baseline)):
            name = str(baseline) if kind is RowKind.TOTAL else f"{baseline}, {label}"
            cells = _speedup_cells(name, frame["over"].to_list(), thresholds)
            rows.append(Row(cells=cells, kind=kind))
    if rows and null:
        cells = _speedup_cells("Null test", null, thresholds)
        rows.append(Row(cells=cells, kind=RowKind.NULL_TEST))
    return Table(
        title="Speedup over other baselines",
        caption=(
            "The certified speedups of the table above, each divided by what the baseline itself "
            "has over the eager reference for that problem, read upwards (its upper bound): both "
            "were measured on the same clock, against the same reference. Counted are the problems "
            "for which the baseline gave a correct answer; a problem without success counts as 1× "
            "and, in the last two columns, as 0×. Null test: the reference against itself."
        ),
        columns=_columns("Baseline", thresholds),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no baseline but eager was judged.",
    )


def baseline_table(given: ReportInput) -> Table:
    """What each way of running the reference has over the eager one."""
    rows: list[Row] = []
    for baseline in Baseline:
        mine = given.baselines.filter(pl.col("baseline") == baseline.value)
        if mine.is_empty():
            continue
        correct = mine.filter(pl.col("status") == Status.CORRECT.value)
        speedups = correct["speedup"].drop_nulls().to_list()
        row = summarize(speedups, failed_as=1.0) if speedups else None
        failures = mine.filter(pl.col("status") != Status.CORRECT.value)["status"].value_counts()
        failed = sorted((status.replace("_", " "), n) for status, n in failures.iter_rows())
        rows.append(Row(cells=(
            str(baseline), f"{mine.height:,}", share(correct.height, mine.height),
            ", ".join(f"{count:,} {status}" for status, count in failed) or "–",
            *(times(value) for value in (
                (None,) * 5 if row is None else
                (row.mean, row.maximum, row.percentile_75, row.median, row.percentile_25)
            )),
        )))  # fmt: skip
    return Table(
        title="Baselines over the eager reference",
        caption=(
            "Each way of running the reference, judged as if it were a candidate: estimates over "
            "the eager reference, of those that were correct. What cannot be captured, compiled or "
            "computed that exactly has failed, and has no place in the denominators above."
        ),
        columns=(
            "Baseline", "Problems", "Correct", "Failed", "Mean", "Max", "75 %", "Median", "25 %",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no baseline was judged.",
    )  # fmt: skip


def _columns(first: str, thresholds: Sequence[float]) -> tuple[str, ...]:
    return (
        first, "Count", "Mean", "Max", "75 %", "Median", "25 %", "Success",
        f"> {MEANINGFUL_SPEEDUP:g}×", "Geo. mean", *(f"fast_{p:g}" for p in thresholds),
        f"Top {LARGEST}", "Mean, 0×", "Median, 0×",
    )  # fmt: skip


def _meaning(protocol: EvalProtocol) -> str:
    if protocol.rule is Rule.PAPER:
        return "what the paper's rule reads, which certifies nothing"
    return (
        f"the largest claim whose lower confidence bound (alpha {protocol.alpha:g}) the "
        "measurement supports"
    )


def _groups(best: pl.DataFrame) -> list[tuple[str, pl.DataFrame, RowKind]]:
    """All problems, then each split, level, split and level, and suite; only what divides them."""
    if best.is_empty():
        return []
    groups = [("All", best, RowKind.TOTAL)]
    for keys in (["split"], ["level"], ["split", "level"], ["suite"]):
        if any(best[key].n_unique() == 1 for key in keys):
            continue
        parts = best.partition_by(keys, as_dict=True)
        # train before held-out
        for values in sorted(parts, key=lambda v: tuple(_order(value) for value in v)):
            label = ", ".join(_label(key, value) for key, value in zip(keys, values, strict=True))
            groups.append((label, parts[values], RowKind.PLAIN))
    return groups


def _order(value: object) -> tuple[bool, str]:
    return value == Split.HELDOUT.value, str(value)


def _label(key: str, value: object) -> str:
    match key:
        case "level":
            return f"level {value}"
        case "split":
            return "held out" if value == Split.HELDOUT.value else str(value)
        case _:
            return f"suite {value}"


def _speedup_cells(
    label: str, speedups: Sequence[float | None], thresholds: Sequence[float]
) -> tuple[str, ...]:
    as_one, as_zero = (summarize(speedups, failed_as=failed_as) for failed_as in (1.0, 0.0))
    count = as_one.num_problems
    is_telling = sum(value is not None and value > 1 for value in speedups) > LARGEST
    carried = excess_share(speedups, LARGEST) if is_telling else None
    return (
        label, f"{count:,}", times(as_one.mean), times(as_one.maximum),
        times(as_one.percentile_75), times(as_one.median), times(as_one.percentile_25),
        share(as_one.num_successful, count), share(as_one.num_meaningful, count),
        times(as_one.geometric_mean if as_one.num_successful else None),
        *(percent(fast_p(speedups, p)) for p in thresholds),
        "–" if carried is None else percent(carried), times(as_zero.mean), times(as_zero.median),
    )  # fmt: skip
