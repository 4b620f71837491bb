"""The techniques of the winners, and the gains that came with them."""

# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

import polars as pl

from cudal1.program.technique import MEANINGS, Technique
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import times
from cudal1.report.tables.table import Row, RowKind, Table
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP
from cudal1.verdict import Status


def technique_table(given: ReportInput) -> Table:
    """Return how many winners have each technique, for how many problems, with what gain."""
    answered = facts.answers(given).select("candidate_id").drop_nulls().unique()
    winners = (
        facts.verdicts(given)
        .filter(pl.col("status") == Status.CORRECT.value, pl.col("certified") > MEANINGFUL_SPEEDUP)
        .join(answered, on="candidate_id", how="semi")
        .select("candidate_id", "problem_id", "certified")
    )
    counted = (
        winners.join(given.techniques, on="candidate_id")
        .group_by("technique")
        .agg(
            pl.len().alias("num_winners"),
            pl.col("problem_id").n_unique().alias("num_problems"),
            pl.col("certified").median().alias("median"),
        )
        .sort("num_winners", "technique", descending=[True, False])
    )
    rows = [
        Row(
            cells=(
                row["technique"],
                _meaning(row["technique"]),
                f"{row['num_winners']:,}",
                f"{row['num_problems']:,}",
                times(row["median"]),
            )
        )
        for row in counted.to_dicts()
    ]
    without = winners.join(given.techniques, on="candidate_id", how="anti")
    if rows and not without.is_empty():
        rows.append(_row("none of these", "No rule names what it does.", without))
    if rows:
        rows.append(_row("all winners", "", winners, RowKind.TOTAL))
    return Table(
        title="Techniques of the winners",
        caption=(
            f"Different candidates that are certified above {MEANINGFUL_SPEEDUP:g}×, by what their "
            "source does and their reference's does not. A winner counts for each of its "
            "techniques, so a gain is not the work of one of them alone. Rules read the source and "
            "name only what it says plainly; what ran on the device, and null tests, are not "
            "counted here."
        ),
        columns=("Technique", "Meaning", "Winners", "Problems", "Median certified"),
        num_text_columns=2,
        rows=tuple(rows),
        nothing_yet="Nothing yet: no winner has a known technique.",
    )


def _row(label: str, meaning: str, part: pl.DataFrame, kind: RowKind = RowKind.PLAIN) -> Row:
    median = part["certified"].median()
    assert isinstance(median, float)
    counts = (f"{part.height:,}", f"{part['problem_id'].n_unique():,}", times(median))
    return Row(cells=(label, meaning, *counts), kind=kind)


def _meaning(name: str) -> str:
    return MEANINGS[Technique(name)] if name in set(Technique) else "Named by another version."
