"""Each problem on its own: its authors, and the best candidate beside the reference.

Sources may be hostile: the renderer must escape them.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from cudal1.record import Record
from cudal1.report import facts
from cudal1.report.comparison import Listing, compared, listing
from cudal1.report.figures.bursts import burst_figure
from cudal1.report.figures.figure import Figure
from cudal1.report.inputs import ReportInput
from cudal1.report.limits import NUM_AUTHORS, NUM_DRAWN, NUM_EXEMPLARS, NUM_PROBLEMS
from cudal1.report.numbers import share, times
from cudal1.report.tables.table import Row, Table
from cudal1.report.words import in_words, lineage
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP
from cudal1.verdict import Status


class ProblemExhibit(Record):
    """A problem, and the best candidate for it."""

    key: str
    anchor: str
    """Slug; unique on the page."""
    is_held_out: bool
    invariants: tuple[str, ...]
    """Facts that hold for the problem's inputs in every draw, as far as they were examined."""
    candidate_id: str | None
    """The best candidate; None when no candidate succeeded."""
    certified: float | None
    """Certified speedup of the best candidate; None when no candidate succeeded."""
    techniques: tuple[str, ...]
    """Techniques of the best candidate, as far as they are known."""
    is_gain: bool
    """True if the certified speedup is meaningfully above 1."""
    tried: str
    """Outcomes of the problem's answers, in words."""
    verdict: tuple[str, ...]
    """Sentences of the harness about the best candidate."""
    authors: tuple[str, ...]
    """Authors of the best candidate; several when the same source came more than once."""
    reference: Listing
    best: Listing | None
    """None also when the candidate's source was not handed over."""
    figure: Figure | None
    by_author: Table


class Level(Record):
    """Problems of one suite and level."""

    title: str
    exhibits: tuple[ProblemExhibit, ...]


class Problems(Record):
    """The problems that are shown, and the numbers of those that are not."""

    levels: tuple[Level, ...]
    num_left_out: int
    """Admitted problems without a section here."""
    num_not_drawn: int
    """Best candidates without a drawing of their timing here."""


def with_sections(given: ReportInput) -> pl.DataFrame:
    """Return rows of `facts.best` that have a section: all, or those of the largest speedups."""
    best = facts.best(given)
    if best.height <= NUM_PROBLEMS:
        return best
    largest = best.sort("certified", descending=True, nulls_last=True, maintain_order=True)
    return best.join(largest.head(NUM_PROBLEMS), on="problem_id", how="semi", maintain_order="left")


def problem_exhibits(given: ReportInput) -> Problems:
    """Return the admitted problems in the suite's order, level by level."""
    rows = with_sections(given)
    timed = rows.filter(pl.col("certified").is_not_null())
    drawn = set(timed.sort("certified", descending=True)["problem_id"].head(NUM_DRAWN).to_list())
    answers = dict(_partitioned(facts.answers(given), "problem_id"))
    sources = dict(given.candidates.select("candidate_id", "source").iter_rows())
    levels: dict[str, list[ProblemExhibit]] = {}
    for row in rows.to_dicts():
        title = f"{row['suite']}, level {row['level']}"
        levels.setdefault(title, []).append(
            _exhibit(
                given,
                row,
                answers.get(row["problem_id"]),
                sources,
                is_drawn=row["problem_id"] in drawn,
            )
        )
    return Problems(
        levels=tuple(Level(title=title, exhibits=tuple(shown)) for title, shown in levels.items()),
        num_left_out=facts.best(given).height - rows.height,
        num_not_drawn=timed.height - len(drawn),
    )


def _partitioned(frame: pl.DataFrame, by: str) -> list[tuple[Any, pl.DataFrame]]:
    parts = frame.partition_by(by, as_dict=True, maintain_order=True)
    return [(key, part) for (key,), part in parts.items()]


def _exhibit(
    given: ReportInput,
    row: dict[str, Any],
    answers: pl.DataFrame | None,
    sources: dict[str, str],
    *,
    is_drawn: bool,
) -> ProblemExhibit:
    """Return the exhibit of a problem's row of `facts.best` and its answers, if there are any."""
    source = sources.get(row["candidate_id"] or "")
    reference, best = (
        (listing(row["source"]), None) if source is None else compared(row["source"], source)
    )
    anchor = f"problem-{row['problem_id']}"
    certified = row["certified"]
    return ProblemExhibit(
        key=facts.problem_key(row),
        anchor=anchor,
        is_held_out=row["split"] == "heldout",
        invariants=tuple(row["invariants"] or ()),
        candidate_id=row["candidate_id"],
        certified=certified,
        techniques=tuple(
            given.techniques.filter(pl.col("candidate_id") == row["candidate_id"])["technique"]
        )
        if row["candidate_id"]
        else (),
        is_gain=certified is not None and certified > MEANINGFUL_SPEEDUP,
        tried=_tried(answers),
        verdict=()
        if certified is None
        else (*in_words(row, given), *lineage(row["candidate_id"], given, at_most=NUM_EXEMPLARS)),
        authors=tuple(row["authors"] or ()),
        reference=reference,
        best=best,
        figure=burst_figure(given, row, name=f"bursts-{row['problem_id']}") if is_drawn else None,
        by_author=_by_author(answers),
    )


def _tried(answers: pl.DataFrame | None) -> str:
    if answers is None:
        return "No answers."
    counts = dict(answers["outcome"].value_counts().iter_rows())
    told = [
        f"{counts[outcome]:,} {outcome.replace('_', ' ')}"
        for outcome in facts.OUTCOMES
        if outcome in counts
    ]
    return f"{answers.height:,} answers: {', '.join(told)}."


def _by_author(answers: pl.DataFrame | None) -> Table:
    rows: list[tuple[float, Row]] = []
    for author, part in _partitioned(answers, "author") if answers is not None else ():
        correct = part.filter(pl.col("outcome") == Status.CORRECT.value)
        top = [float(value) for value in correct["certified"].drop_nulls()]
        rows.append(
            (
                max(top, default=0.0),
                Row(
                    cells=(
                        author,
                        f"{part.height:,}",
                        share(correct.height, part.height),
                        times(max(top, default=None)),
                    )
                ),
            )
        )
    rows.sort(key=lambda item: -item[0])
    left_out = len(rows) - NUM_AUTHORS
    return Table(
        title="By author",
        caption="Best: the largest certified speedup."
        + (f" {left_out} further authors are left out." if left_out > 0 else ""),
        columns=("Author", "Answers", "Correct", "Best"),
        rows=tuple(row for _, row in rows[:NUM_AUTHORS]),
        nothing_yet="Nothing yet: nobody was asked.",
    )
