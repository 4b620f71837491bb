"""The questions to the reviewer, its answers, and people's rulings on them."""

from __future__ import annotations

import polars as pl

from cudal1.report.inputs import ReportInput
from cudal1.report.tables.table import Row, RowKind, Table


def second_opinion_table(given: ReportInput) -> Table:
    """Return suspicious successes by the reason for the suspicion, with their outcomes."""
    # the numbers in a reason differ from one to the next; its words say which rule asked
    opinions = given.second_opinions.with_columns(
        rule=pl.when(pl.col("trigger").is_null())
        .then(pl.lit("not known: it could not be asked"))
        .when(pl.col("trigger").str.starts_with("same code"))
        .then(pl.lit("same code as another"))
        .when(pl.col("trigger").str.starts_with("drawn"))
        .then(pl.lit("a gain drawn at random"))
        .when(pl.col("trigger").str.starts_with("it was"))
        .then(pl.lit("was suspicious before"))
        .when(pl.col("trigger").str.contains("record"))
        .then(pl.lit("jump over the record"))
        .when(pl.col("trigger").str.starts_with("certified"))
        .then(pl.lit("large gain"))
        .otherwise(pl.lit("gain with a sign in the source"))
    )
    rows = [
        _row(rule, opinions.filter(pl.col("rule") == rule))
        for rule in sorted(opinions["rule"].unique().to_list())
    ]
    if len(rows) > 1:
        rows.append(_row("all", opinions, RowKind.TOTAL))
    reviewer = given.provenance.reviewer
    return Table(
        title="Second opinions",
        caption=(
            f"The reviewer is {reviewer}. It is asked about suspicious successes and a few "
            "others, may veto and never approve; a veto holds until a person dismisses it "
            "(cudal1 hacks), and one that a person confirms is shown to it from then on."
        ),
        columns=(
            "Suspicious for",
            "Candidates",
            "Vetoed",
            "Passed",
            "No answer",
            "Confirmed",
            "Dismissed",
        ),
        rows=tuple(rows),
        nothing_yet=(
            "The reviewer is off (reviewer.provider is null); every verdict says so."
            if reviewer == "off"
            else f"Nothing yet: {reviewer} was not asked about any candidate."
        ),
    )


def _row(rule: str, opinions: pl.DataFrame, kind: RowKind = RowKind.PLAIN) -> Row:
    counts = (
        opinions.height,
        opinions.filter(pl.col("is_cheat")).height,
        opinions.filter(~pl.col("is_cheat")).height,
        opinions.filter(pl.col("is_cheat").is_null()).height,
        opinions.filter(pl.col("ruling")).height,
        opinions.filter(~pl.col("ruling")).height,
    )
    return Row(cells=(rule, *(f"{count:,}" for count in counts)), kind=kind)
