"""The time of a training step and of its parts: a table with a row for each stage, and curves."""

# ruff: noqa: RUF001 (– is what readers see)
from __future__ import annotations

import altair as alt
import polars as pl

from cudal1.report import facts
from cudal1.report.figures.curves import thinned
from cudal1.report.figures.figure import Figure, figure_of, snug
from cudal1.report.figures.theme import SERIES
from cudal1.report.inputs import ReportInput
from cudal1.report.numbers import percent
from cudal1.report.tables.table import Row, Table

PARTS = ("generate_s", "build_s", "judge_s", "train_s", "rest_s", "step_s")
"""Numbers of a step, in seconds."""
DRAWN = {
    "generate_s": "generate",
    "build_s": "build",
    "judge_s": "judge",
    "train_s": "train",
    "rest_s": "rest",
}


def seconds_table(given: ReportInput) -> Table:
    """Return mean seconds of a step and its parts, and the share in which devices are idle."""
    timed = given.steps.filter(pl.col("name").is_in([*PARTS, "idle"]))
    return Table(
        title="Where a step's time goes",
        caption=(
            "Means over steps. Build is what devices waited for candidates to start and to be "
            "built, judge the rest of the time of new verdicts; both are summed over devices, and "
            "come beside the policy where it leaves a device free, so that the parts may be more "
            "than the step. Rest: prompts, extraction, the ledger. Idle: the share of the step in "
            "which its devices neither write, train, check nor measure, whether or not there was "
            "anything to do."
        ),
        columns=(
            "Stage",
            "Steps",
            "Generate, s",
            "Build, s",
            "Judge, s",
            "Train, s",
            "Rest, s",
            "Step, s",
            "Idle",
        ),
        rows=tuple(_row(stage, timed) for stage in facts.stages(timed)),
        nothing_yet="Nothing yet: no stage has timed the parts of its steps.",
    )


def _row(stage: str, timed: pl.DataFrame) -> Row:
    mine = timed.filter(pl.col("stage") == stage)
    means = dict(mine.group_by("name").agg(pl.col("value").mean()).iter_rows())
    seconds = [f"{means[name]:,.2f}" if name in means else "–" for name in PARTS]
    idle = percent(means["idle"]) if "idle" in means else "–"
    return Row(cells=(facts.policy_label(stage), f"{mine['step'].n_unique():,}", *seconds, idle))


def seconds_figures(given: ReportInput) -> list[Figure]:
    """Return a figure of the seconds of a step's parts, for each stage that logged them."""
    figures: list[Figure] = []
    timed = given.steps.filter(pl.col("name").is_in(list(DRAWN)))
    for stage in facts.stages(timed):
        mine = timed.filter(pl.col("stage") == stage).sort("step")
        if mine["step"].n_unique() < 2:
            continue
        curves = [
            thinned(mine.filter(pl.col("name") == name)).with_columns(part=pl.lit(label))
            for name, label in DRAWN.items()
        ]
        labels = list(DRAWN.values())
        scale = alt.Scale(domain=labels, range=list(SERIES[: len(labels)]))
        lines = alt.Chart(pl.concat(curves, how="vertical_relaxed")).mark_line(strokeWidth=2)
        drawn = lines.encode(
            x=alt.X("step:Q", axis=alt.Axis(title="step", tickMinStep=1), scale=snug()),
            y=alt.Y("value:Q", axis=alt.Axis(title="seconds", tickCount=5)),
            color=alt.Color("part:N", scale=scale, legend=alt.Legend()),
        )
        slug = "".join(char if char.isalnum() else "-" for char in f"seconds-{stage}")
        figures.append(
            figure_of(
                slug,
                drawn,
                caption=f"{facts.policy_label(stage)}: seconds of the parts of a step. Build and "
                "judge are summed over devices; rest is prompts, extraction, the ledger.",
            )
        )
    return figures
