"""The page of `cudal1 optimize`: one file, no script, nothing from the network.

Every text that reaches the template is escaped there: candidates' sources, their words in reasons,
and names of operators. Figures and the style sheet alone are markup of our own.
"""

from __future__ import annotations

import altair as alt
import polars as pl

from cudal1.files.python_file import visible
from cudal1.record import Record
from cudal1.report.comparison import compared
from cudal1.report.figures.figure import Figure, figure_of, snug
from cudal1.report.figures.theme import BLUE
from cudal1.report.numbers import times
from cudal1.report.tables.table import Row, Table
from cudal1.report.templates import filled

TEMPLATE = "optimized.html.j2"
NUM_TRIED = 300
"""Number of tried programs on the page; the ledger has all."""


class Tried(Record):
    """A judged program."""

    author: str
    outcome: str
    """Its status in words."""
    certified: float | None
    """Certified speedup; None for a failure."""
    said: str
    """Its outcome in one line; the line may quote untrusted code."""


class AuthorRow(Record):
    """The outcomes of one author's answers."""

    author: str
    num_answers: int
    num_unusable: int
    """Answers without code, or without a kernel in the language that was asked for."""
    num_copies: int
    num_judged: int
    num_correct: int
    best: float | None
    """Best certified speedup; None without a success."""
    cost_usd: float


class OptimizedInput(Record):
    """Everything that the page shows."""

    module: str
    """Name of the module's file."""
    headline: str
    """The verdict in one sentence."""
    facts: dict[str, str]
    """Device, protocol and versions, by name."""
    verdict: tuple[tuple[str, str], ...]
    """Label and text of each line of the verdict; empty where nothing is kept."""
    reference: str
    """The module's source."""
    version: str | None
    """Source of the kept version; None where nothing is kept."""
    profile: tuple[str, ...]
    invariants: tuple[str, ...]
    authors: tuple[AuthorRow, ...]
    tried: tuple[Tried, ...]
    """Judged programs in the order of their verdicts."""
    stopped: str
    """The reason for the end of the last run."""


def optimized_html(given: OptimizedInput) -> str:
    """Return the whole page; equal input makes equal bytes."""
    sources = None if given.version is None else compared(given.reference, given.version)
    return filled(
        TEMPLATE,
        given=given,
        figure=_curve(given),
        sources=sources,
        authors=_author_table(given),
        tried=_tried_table(given),
    )


def _curve(given: OptimizedInput) -> Figure | None:
    """Return the best certified speedup after each verdict; None before the first verdict."""
    if not given.tried:
        return None
    best, points = 1.0, [(0, 1.0)]
    for number, tried in enumerate(given.tried, start=1):
        best = max(best, tried.certified or 0.0)
        points.append((number, best))
    frame = pl.DataFrame(points, schema=["verdicts", "best"], orient="row")
    line = (
        alt.Chart(frame)
        .mark_line(color=BLUE, strokeWidth=2, interpolate="step-after")
        .encode(
            x=alt.X("verdicts:Q", title="verdicts", axis=alt.Axis(tickMinStep=1), scale=snug()),
            y=alt.Y("best:Q", title="best certified speedup", scale=snug()),
        )
    )
    return figure_of(
        "best",
        line,
        caption="Best certified speedup after each verdict of the search; 1 is the reference's. "
        "What is kept was measured a second time, so its speedup may differ from the last one.",
    )


def _author_table(given: OptimizedInput) -> Table:
    return Table(
        title="By author",
        caption="Copies are the reference or an earlier answer in other words; they are not judged "
        "again. Unusable are answers without code, or without a kernel in the language that was "
        "asked for. Best: the largest certified speedup of the search.",
        columns=("Author", "Answers", "Unusable", "Copies", "Judged", "Correct", "Best", "USD"),
        rows=tuple(
            Row(
                cells=(
                    row.author,
                    f"{row.num_answers:,}",
                    f"{row.num_unusable:,}",
                    f"{row.num_copies:,}",
                    f"{row.num_judged:,}",
                    f"{row.num_correct:,}",
                    times(row.best),
                    f"{row.cost_usd:.2f}",
                )
            )
            for row in given.authors
        ),
        nothing_yet="Nothing yet: no author was asked.",
    )


def _tried_table(given: OptimizedInput) -> Table:
    left = len(given.tried) - NUM_TRIED
    numbered = list(enumerate(given.tried, start=1))[-NUM_TRIED:]
    return Table(
        title="What was tried",
        caption="Each judged program, the newest first."
        + (f" {left:,} earlier ones are left out." if left > 0 else ""),
        columns=("Number", "Author", "Outcome", "Why", "Certified"),
        num_text_columns=4,
        rows=tuple(
            Row(
                cells=(
                    str(number),
                    tried.author,
                    tried.outcome,
                    visible(tried.said),
                    times(tried.certified),
                )
            )
            for number, tried in reversed(numbered)
        ),
        nothing_yet="Nothing yet: no program was judged.",
    )
