"""Methods side by side, as in the paper's table 5: frozen weights that are asked, and our stages.

Which are compared, and on what terms: `contenders`. Counting is `cudal1.selection.metrics`.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import share, times
from cudal1.report.tables.cells import null_note
from cudal1.report.tables.contenders import Comparison, comparison
from cudal1.report.tables.table import Row, RowKind, Table
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP, summarize

PAPER = (  # label, mean, maximum, median, successful, meaningful; a failure is 0
    ("R1, vanilla", 0.88, 14.4, 0.75, 179, 18),
    ("R1, evolve", 1.41, 44.2, 1.17, 248, 162),
    ("stage 1", 1.14, 32.7, 1.00, 240, 50),
    ("stages 1+2", 1.36, 48.3, 1.09, 247, 175),
    ("3 stages, random", 2.14, None, None, None, 186),
    ("3 stages, island", 3.21, None, None, None, 223),
    ("3 stages, bucket", 3.12, 120.0, 1.42, 249, 226),
)
"""The paper's table 5, as far as it is known."""
PAPER_PROBLEMS = 250
PAPER_NOTE = (
    f"Paper: {PAPER_PROBLEMS} KernelBench problems on an A100, other models and an unknown number "
    "of answers, so for orientation only."
)


def method_table(given: ReportInput) -> Table:
    """Return methods and policies side by side, like table 5."""
    among = comparison(given)
    problems, num_answers = among.problems, among.num_answers
    rows = [
        Row(cells=_cells(contender.label, contender.best(problems, num_answers), num_answers))
        for contender in among.contenders
    ]
    null = facts.null_speedups(given, problems) if rows else []
    if null:
        rows.append(Row(cells=_cells("Null test", null, 1), kind=RowKind.NULL_TEST))
    if rows:
        rows += [Row(cells=_paper_cells(*line), kind=RowKind.PAPER) for line in PAPER]
    return Table(
        title="Methods and stages (as table 5)",
        caption=" ".join((_caption(among), null_note(given), PAPER_NOTE)),
        columns=(
            "Method",
            "Problems",
            "Answers",
            "Success",
            f"> {MEANINGFUL_SPEEDUP:g}×",
            "Max",
            "Mean, 0×",
            "75 %, 0×",
            "Median, 0×",
            "25 %, 0×",
            "Mean, 1×",
            "75 %, 1×",
            "Median, 1×",
            "25 %, 1×",
            "Geo. mean, 1×",
            "Geo. mean of successes",
        ),
        rows=tuple(rows),
        nothing_yet="Nothing yet: no method was run, or no two on the same problems.",
    )


def _caption(among: Comparison) -> str:
    policies = (
        "Policies are left out: they were examined on other problems."
        if among.policies_left_out
        else "A policy of a stage is asked with the plain prompt, so it is vanilla with other "
        "weights; where a method asks the same weights so, the difference is chance."
    )
    ended = (
        f" Left out, for the provider stopped: {', '.join(among.stopped)}." if among.stopped else ""
    )
    return (
        f"Best certified speedup of each of {len(among.problems):,} problems, among the first "
        f"{among.num_answers:,} answers to each: the problems that every row was given, and as "
        "many answers as the row that had fewest. Vanilla asks with the plain prompt; evolve shows "
        "earlier successes of its own with their scores, and refine the attempts before an answer "
        "with what became of them; weights stay as they are. "
        f"{policies}{ended} A problem without success counts as 0× (the convention of the "
        "paper's table 5) or as 1× (that of its tables 4 and 6), as the column says; with 0× a "
        "geometric mean is 0×. ±: 95 % of the mean over problems."
    )


def _cells(label: str, best: Sequence[float | None], num_answers: int) -> tuple[str, ...]:
    as_zero, as_one = (summarize(best, failed_as=failed_as) for failed_as in (0.0, 1.0))
    count = len(best)
    return (
        label,
        f"{count:,}",
        f"{num_answers:,}",
        share(as_zero.num_successful, count),
        share(as_zero.num_meaningful, count),
        times(as_zero.maximum if as_zero.num_successful else None),
        f"{times(as_zero.mean)}{_half_width(best)}",
        times(as_zero.percentile_75),
        times(as_zero.median),
        times(as_zero.percentile_25),
        times(as_one.mean),
        times(as_one.percentile_75),
        times(as_one.median),
        times(as_one.percentile_25),
        times(math.exp(fmean(math.log(value or 1.0) for value in best))),
        times(as_zero.geometric_mean if as_zero.num_successful else None),
    )


def _half_width(best: Sequence[float | None]) -> str:
    """Return half of the 95 % interval of the mean over problems, a failure as 0."""
    if len(best) < 2:
        return ""
    return f" ± {1.96 * stdev(value or 0.0 for value in best) / math.sqrt(len(best)):.2f}"


def _paper_cells(
    label: str,
    mean: float,
    maximum: float | None,
    median: float | None,
    successful: int | None,
    meaningful: int,
) -> tuple[str, ...]:
    return (
        f"Paper: {label}",
        f"{PAPER_PROBLEMS}",
        "–",
        "–" if successful is None else share(successful, PAPER_PROBLEMS),
        share(meaningful, PAPER_PROBLEMS),
        times(maximum),
        times(mean),
        "–",
        times(median),
        "–",
        *("–",) * 6,
    )
