"""Figures of training: how the policy fares stage by stage, and each stage's learning curves."""

from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from cudal1.problem import Split
from cudal1.report import facts
from cudal1.report.figure import Figure, figure_of, snug
from cudal1.report.inputs import ReportInput
from cudal1.report.theme import BLUE, MUTED, PURPLE
from cudal1.verdict import Status

TRAINED_ON = ("loss", "reward_raw", "reward", "success", "kl", "entropy")
"""Which numbers of a training step are drawn, in this order, when a stage logged them."""
_MEANINGS = {
    "loss": "loss (dft: tokens weighted with their probability)",
    "reward_raw": "mean reward (certified speedup)",
    "success": "share of successes",
    "reward": "mean smoothed reward (equation 6)", "kl": "KL divergence from the start, nats",
    "entropy": "entropy, nats per token",
}  # fmt: skip


def policy_figures(given: ReportInput) -> list[Figure]:
    """Success and mean reward of the policy's held-out answers, stage by stage."""
    answers = facts.answers(given).filter(
        pl.col("provider") == facts.POLICY, pl.col("split") == Split.HELDOUT.value
    )
    if answers.is_empty():
        return []
    rows: list[dict[str, Any]] = []
    for stage in facts.stages(answers):
        part = answers.filter(pl.col("stage") == stage)
        hits = part.filter(pl.col("outcome") == Status.CORRECT.value).height
        low, high = facts.wilson(hits, part.height)
        rows.append({
            "policy": facts.policy_label(stage), "success": hits / part.height, "low": low,
            "high": high, "reward": part["reward"].mean(),
        })  # fmt: skip
    order = [row["policy"] for row in rows]
    lines = alt.Axis(title=None, labelAngle=0, labelExpr="split(datum.value, ' ')")
    x = alt.X("policy:N", sort=order, axis=lines)
    base = alt.Chart(pl.DataFrame(rows, infer_schema_length=None))
    interval = base.mark_rule(color=BLUE, strokeWidth=2).encode(
        x=x, y=alt.Y("low:Q", axis=alt.Axis(format="%", title="successful answers")), y2="high:Q"
    )
    share = base.mark_point(color=BLUE, filled=True, size=70, opacity=1).encode(x=x, y="success:Q")
    success = alt.LayerChart(layer=[interval, share])
    reward = base.mark_bar(color=PURPLE, width={"band": 0.5}).encode(
        x=x, y=alt.Y("reward:Q", axis=alt.Axis(title="mean reward"))
    )
    return [
        figure_of(
            "policy-success", success,
            caption="Success of sampled answers on held-out problems, with 95 % intervals.",
        ),
        figure_of(
            "policy-reward", reward,
            caption="Mean reward of the same answers: the certified speedup, 0 for a failure.",
        ),
    ]  # fmt: skip


def learning_figures(given: ReportInput) -> list[Figure]:
    """A small chart for each training stage and number that it logged."""
    figures: list[Figure] = []
    for stage in facts.stages(given.steps):
        of_stage = given.steps.filter(pl.col("stage") == stage).sort("step")
        for name in TRAINED_ON:
            curve = of_stage.filter(pl.col("name") == name, pl.col("value").is_finite())
            if curve.height > 1:
                figures.append(_learning_figure(stage, name, curve))
    return figures


def _learning_figure(stage: str, name: str, curve: pl.DataFrame) -> Figure:
    window = max(1, curve.height // 12)
    smooth = curve.with_columns(
        mean=pl.col("value").rolling_mean(window, min_samples=1, center=True)
    )
    base = alt.Chart(smooth.select("step", "value", "mean")).encode(
        x=alt.X("step:Q", axis=alt.Axis(title="step", tickMinStep=1, tickCount=6), scale=snug())
    )
    y = alt.Y("value:Q", axis=alt.Axis(title=None, tickCount=5), scale=alt.Scale(zero=False))
    raw = base.mark_line(color=MUTED, strokeWidth=1, opacity=0.45).encode(y=y)
    line = base.mark_line(color=BLUE, strokeWidth=2).encode(y="mean:Q")
    shown = f"mean over {window} logged steps" if window > 1 else "as logged"
    slug = "".join(char if char.isalnum() else "-" for char in f"curve-{stage}-{name}")
    return figure_of(
        slug, alt.LayerChart(layer=[raw, line]), height=130,
        caption=f"{facts.policy_label(stage)}: {_MEANINGS[name]} ({shown}).",
    )  # fmt: skip
