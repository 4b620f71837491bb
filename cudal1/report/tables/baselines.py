"""Speedups over other ways of running the reference, and of those ways over the eager one.

If a way cannot run a problem, its denominator leaves the problem out; the tables say why.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

import re
from collections import Counter
from typing import Any

import polars as pl

from cudal1.baseline import Baseline
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import share, times
from cudal1.report.tables.cells import AS_ZERO, cells, failures, null_note, statistics, titled
from cudal1.report.tables.speedups import groups, null_rows
from cudal1.report.tables.table import Row, RowKind, Table
from cudal1.selection.metrics import summarize
from cudal1.verdict import Status

_CAPTURED = frozenset({Baseline.CUDA_GRAPH, Baseline.REDUCE_OVERHEAD})
_COMPILED = frozenset({Baseline.COMPILE, Baseline.REDUCE_OVERHEAD})
_NO_CAPTURE = re.compile(r"captur", re.IGNORECASE)
"""Pattern of what CUDA and PyTorch say of everything that may not be in a graph, such as `.item()`:
`operation not permitted when stream is capturing`, `… during CUDA graph capture`."""
_NO_COMPILATION = re.compile(r"dynamo|inductor|compil|^Unsupported\b", re.IGNORECASE)
_LOOSER = re.compile(r"only in the looser precision class (\w+)")


def over_baselines(given: ReportInput, failed_as: float) -> Table:
    """Return table 4 over every other baseline, of the problems that it can run."""
    thresholds = given.provenance.fast_p
    rows: list[Row] = []
    for baseline in _judged(given):
        found = facts.best_over(given, baseline)
        for label, frame, kind in groups(found) or [("All", found, RowKind.TOTAL)]:
            name = str(baseline) if kind is RowKind.TOTAL else f"{baseline}, {label}"
            counted = cells(frame["over"].to_list(), thresholds, failed_as)
            rows.append(Row(cells=(name, *counted), kind=kind))
    rows += null_rows(given, failed_as) if rows else []
    return Table(
        title=titled("Speedup over other baselines", failed_as),
        caption=_caption(given, failed_as),
        columns=("Baseline", *statistics(thresholds)),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no baseline but eager was judged.",
        is_folded=failed_as == AS_ZERO,
    )


def baseline_table(given: ReportInput) -> Table:
    """Return the speedup of each way of running the reference over the eager one.

    The table says where a way cannot run.
    """
    rows = [
        _row(str(baseline), given.baselines.filter(pl.col("baseline") == baseline.value))
        for baseline in _judged(given)
    ]
    if rows and not given.null_test.is_empty():
        null = given.null_test.with_columns(
            baseline=pl.lit(Baseline.EAGER.value), reason=pl.lit(""), at_most="speedup"
        )
        rows.append(_row("Null test", null, RowKind.NULL_TEST))
    return Table(
        title="Baselines over the eager reference",
        caption=(
            "Each way of running the reference, judged as if it were a candidate: estimates over "
            "the eager reference, of the problems in its denominator. A problem that it cannot "
            "run, or not as exactly as the protocol asks, is in no denominator, neither here nor "
            "in the tables above; why is what its verdict says. "
            f"{null_note(given)}"
        ),
        columns=(
            "Baseline",
            "Left out, and why",
            "Problems",
            "Denominator",
            "Mean",
            "Max",
            "75 %",
            "Median",
            "25 %",
        ),
        num_text_columns=2,
        rows=tuple(rows),
        nothing_yet="Nothing yet: no baseline was judged.",
    )


def why_not(verdict: dict[str, Any]) -> str | None:
    """Return why a baseline has no place for this problem, in a word or two; else None.

    The words are for people: they are read from the text of the verdict's reason.
    """
    status, reason, baseline = verdict["status"], verdict["reason"] or "", verdict["baseline"]
    if status == Status.CORRECT.value:
        return "not timed" if verdict["at_most"] is None else None
    if baseline in _CAPTURED and _NO_CAPTURE.search(reason):
        return "cannot be captured"
    if baseline in _COMPILED and _NO_COMPILATION.search(reason):
        return "cannot be compiled"
    if found := _LOOSER.search(reason):
        return f"only as exact as {found[1]}"
    return str(status).replace("_", " ")


def _judged(given: ReportInput) -> list[Baseline]:
    known = set(given.baselines["baseline"].to_list())
    return [each for each in Baseline if each is not Baseline.EAGER and each.value in known]


def _left_out(judged: pl.DataFrame) -> str:
    """Return reasons with their counts, most frequent first."""
    reasons = Counter(reason for row in judged.to_dicts() if (reason := why_not(row)))
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{reason}: {count:,}" for reason, count in ordered)


def _caption(given: ReportInput, failed_as: float) -> str:
    if failed_as == AS_ZERO:
        return f"{failures(failed_as)} {null_note(given)}"
    without = {
        baseline: _left_out(given.baselines.filter(pl.col("baseline") == baseline.value))
        for baseline in _judged(given)
    }
    named = [f"{baseline} ({reasons})" for baseline, reasons in without.items() if reasons]
    return (
        "The certified speedups over the eager reference, each divided by what the baseline itself "
        "has over it for that problem, read upwards (its upper bound): both were measured on the "
        "same clock, against the same reference. Counted are the problems for which the baseline "
        f"gave a correct answer. Left out: {'; '.join(named) or 'none'}. "
        f"{failures(failed_as)} {null_note(given)}"
    )


def _row(label: str, judged: pl.DataFrame, kind: RowKind = RowKind.PLAIN) -> Row:
    counted = judged.filter(
        pl.col("status") == Status.CORRECT.value, pl.col("at_most").is_not_null()
    )["speedup"].to_list()
    row = summarize(counted, failed_as=1.0) if counted else None
    return Row(
        cells=(
            label,
            _left_out(judged) or "–",
            f"{judged.height:,}",
            share(len(counted), judged.height),
            *(
                times(value)
                for value in (
                    (None,) * 5
                    if row is None
                    else (row.mean, row.maximum, row.percentile_75, row.median, row.percentile_25)
                )
            ),
        ),
        kind=kind,
    )
