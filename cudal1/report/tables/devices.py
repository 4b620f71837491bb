"""Devices side by side, as in the paper's table 6: a column for each device, rows by baseline.

The cells are those of the tables of speedups, turned by a right angle.
"""

# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import polars as pl

from cudal1.baseline import Baseline
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import times
from cudal1.report.tables.cells import AS_ZERO, MEAN, NULL_TEST, cells, failures, statistics, titled
from cudal1.report.tables.table import Row, RowKind, Table
from cudal1.verdict import Status

CHOSEN = "Mean when chosen"
Speedups = Sequence[float | None]
"""The best speedup of each problem; None where nothing succeeded."""


@dataclass(frozen=True)
class Column:
    """The measurements on one kind of device."""

    device_kind: str
    over: Mapping[Baseline, Speedups]
    """Speedups over each baseline that was judged there, of the problems that it can run."""
    null_test: Speedups


def device_table(given: ReportInput, failed_as: float) -> Table:
    """Return each problem's winner, measured anew on every device there was."""
    again = _again(given).partition_by("device_kind", as_dict=True)
    devices = {str(device): part for (device,), part in sorted(again.items())}
    here = given.provenance.device_kind
    nothing = given.transferred.filter("is_null_test").sort("problem_id")
    columns = [
        Column(
            device,
            {Baseline.EAGER: _certified(part)},
            _certified(nothing.filter(pl.col("device_kind") == device)),
        )
        for device, part in devices.items()
    ]
    rows = _rows(columns, given.provenance.fast_p, failed_as)
    if rows:
        firsts = (times(fmean(part["first"].to_list())) for part in devices.values())
        rows.insert(0, Row(cells=(f"{Baseline.EAGER}: {CHOSEN}", *firsts)))
    only = " One device so far, so this column is a repetition." if len(columns) == 1 else ""
    return Table(
        title=titled("Winners measured again, by device (as table 6)", failed_as),
        caption=failures(failed_as)
        if failed_as == AS_ZERO
        else (
            f"The best candidate of each problem on {here}, judged anew there and elsewhere. The "
            f"row “{CHOSEN}” is what the same winners had when they were chosen: the "
            f"difference on the same device is the luck of winning, and gains that were not "
            f"steady or not confirmed this time, which count as none.{only} Winners are measured "
            "again over the eager reference alone, under a protocol that differs from the report's "
            "by its seed, and so is the null test, of their problems. "
            f"{failures(failed_as)} {_null_note(columns)}"
        ),
        columns=("Speedup over", *devices),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no winner was measured again.",
        is_folded=failed_as == AS_ZERO,
    )


def across_devices(judged: Sequence[ReportInput], num_candidates: int, failed_as: float) -> Table:
    """Return the results of the same candidates for the same problems, over each baseline.

    Args:
        judged: verdicts on the candidates, each input of one device.
        num_candidates: number of candidates that were judged on all of them.
        failed_as: the speedup that a problem without success counts as.
    """
    columns = [_column(given) for given in judged]
    count = max((len(column.over[Baseline.EAGER]) for column in columns), default=0)
    thresholds = judged[0].provenance.fast_p if judged else ()
    return Table(
        title=titled("Speedup by device (as table 6)", failed_as),
        caption=failures(failed_as)
        if failed_as == AS_ZERO
        else (
            f"Best certified speedup of each of {count:,} problems, over the {num_candidates:,} "
            "candidates that have a verdict on every device: over the eager reference, and over "
            "each other baseline on the devices where it was judged, of the problems that it can "
            f"run there. {failures(failed_as)} {_null_note(columns)}"
        ),
        columns=("Speedup over", *(column.device_kind for column in columns)),
        rows=tuple(_rows(columns, thresholds, failed_as)),
        nothing_yet="Nothing yet: no candidate has a verdict on every device.",
        is_folded=failed_as == AS_ZERO,
    )


def _again(given: ReportInput) -> pl.DataFrame:
    """Return the winner of the first measurement, of each problem and device.

    `first` is the speedup of that measurement. The winner of the second would be wrong: the best of
    several is lucky again.
    """
    chosen = facts.verdicts(given).filter(pl.col("status") == Status.CORRECT.value)
    first = chosen.select("candidate_id", first="certified").drop_nulls()
    return (
        given.transferred.join(first, on="candidate_id", how="inner")
        .sort("first", "candidate_id", descending=[True, False])
        .unique(["device_kind", "problem_id"], keep="first", maintain_order=True)
    )


def _certified(judged: pl.DataFrame) -> Speedups:
    is_correct = pl.col("status") == Status.CORRECT.value
    return judged.select(pl.when(is_correct).then("certified")).to_series().to_list()


def _column(given: ReportInput) -> Column:
    over = {Baseline.EAGER: facts.best(given)["certified"].to_list()}
    for name in given.baselines["baseline"].unique().to_list():
        over[Baseline(name)] = facts.best_over(given, Baseline(name))["over"].to_list()
    return Column(given.provenance.device_kind, over, facts.null_speedups(given))


def _rows(columns: Sequence[Column], thresholds: Sequence[float], failed_as: float) -> list[Row]:
    """Return the rows of each baseline that any device has, then those of the null test."""
    if not any(column.over[Baseline.EAGER] for column in columns):
        return []
    named = statistics(thresholds)
    found: list[Row] = []
    for baseline in Baseline:
        if any(baseline in column.over for column in columns):
            sides = [_side(column.over.get(baseline), thresholds, failed_as) for column in columns]
            found += [
                Row(
                    cells=(f"{baseline}: {name}", *line),
                    kind=RowKind.TOTAL if name == MEAN else RowKind.PLAIN,
                )
                for name, *line in zip(named, *sides, strict=True)
            ]
    if any(column.null_test for column in columns):
        sides = [_side(column.null_test or None, thresholds, failed_as) for column in columns]
        found += [
            Row(cells=(f"Null test: {name}", *line), kind=RowKind.NULL_TEST)
            for name, *line in zip(named, *sides, strict=True)
        ]
    return found


def _side(
    speedups: Speedups | None, thresholds: Sequence[float], failed_as: float
) -> Sequence[str]:
    """Return a device's cells; dashes for what was not judged there."""
    if speedups is None:
        return ("–",) * len(statistics(thresholds))
    return cells(speedups, thresholds, failed_as)


def _null_note(columns: Sequence[Column]) -> str:
    without = [column.device_kind for column in columns if not column.null_test]
    if not without:
        return NULL_TEST
    missing = (
        f"No null test was run on {', '.join(without)}, so nothing here says how far off the "
        "harness itself is there."
    )
    return missing if len(without) == len(columns) else f"{NULL_TEST} {missing}"
