"""Figure of training: each problem's best certified speedup so far, step by step."""

from __future__ import annotations

import altair as alt
import polars as pl

from cudal1.report import facts
from cudal1.report.figures.figure import Figure, figure_of, snug
from cudal1.report.figures.theme import BLUE, MUTED
from cudal1.report.inputs import ReportInput
from cudal1.report.limits import NUM_BESTS

CELL_WIDTH, CELL_HEIGHT, NUM_COLUMNS = 84, 40, 3
"""Width and height of one problem's picture, in pixels; and pictures side by side."""


def best_figures(given: ReportInput) -> list[Figure]:
    """Return a figure for each stage that earned certified speedups while it trained.

    The figure has a small picture for each problem.
    """
    known = given.rises.join(given.problems, on="problem_id", how="semi")
    return [
        _best_figure(given, stage, known.filter(pl.col("stage") == stage))
        for stage in facts.stages(known)
    ]


def _best_figure(given: ReportInput, stage: str, rises: pl.DataFrame) -> Figure:
    steps = given.steps.filter(pl.col("stage") == stage)["step"]
    last = pl.lit(pl.concat([rises["step"], steps]).max(), dtype=pl.Int64)
    tops = rises.group_by("problem_id").agg(pl.col("best_speedup").max(), step=last)
    shown = tops.sort(-pl.col("best_speedup"), "problem_id").head(NUM_BESTS)
    first = shown.with_columns(best_speedup=pl.lit(1.0), step=pl.lit(0, dtype=pl.Int64))
    columns = ["problem_id", "step", "best_speedup"]
    reached = rises.join(shown, on="problem_id", how="semi")
    points = pl.concat([each.select(columns) for each in (first, reached, shown)])
    points = points.with_columns(pl.col("best_speedup").clip(1.0, None))
    keys = {row["problem_id"]: facts.problem_key(row) for row in given.problems.to_dicts()}
    names = [keys[str(each)] for each in shown["problem_id"]]
    drawn = points.with_columns(problem=pl.col("problem_id").replace_strict(keys))
    line = (
        alt.Chart(drawn)
        .mark_line(color=BLUE, strokeWidth=2, interpolate="step-after")
        .encode(
            x=alt.X("step:Q", axis=alt.Axis(title=None, tickCount=3, tickMinStep=1), scale=snug()),
            y=alt.Y(
                "best_speedup:Q",
                axis=alt.Axis(title=None, tickCount=3, format="~g"),
                scale=alt.Scale(type="log", nice=False),
            ),
        )
    )
    header = alt.Header(
        labelExpr="slice(datum.label, indexof(datum.label, '/') + 1)",  # without the suite
        labelFontSize=9,
        labelColor=MUTED,
        labelLimit=CELL_WIDTH,
        labelPadding=2,
    )
    pictures = line.properties(width=CELL_WIDTH, height=CELL_HEIGHT).facet(
        alt.Facet("problem:N", sort=names, title=None, header=header),
        columns=NUM_COLUMNS,
        spacing=10,
    )
    left = tops.height - shown.height
    return figure_of(
        f"best-{stage.replace('@', '-')}",
        pictures,
        caption=f"{facts.policy_label(stage)}: best certified speedup of each problem after each "
        "step, as it was rewarded then, but for what was vetoed since; 1 is the reference's. "
        "Largest first" + (f"; problems left out: {left}." if left else "."),
    )
