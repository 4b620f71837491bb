"""Figures of training: the policy's results stage by stage, and each stage's learning curves."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

import altair as alt
import polars as pl

from cudal1.problem import Split
from cudal1.report import facts
from cudal1.report.figures.figure import Figure, figure_of, snug
from cudal1.report.figures.theme import BLUE, INK, MUTED, PURPLE
from cudal1.report.inputs import ReportInput
from cudal1.report.limits import NUM_POINTS
from cudal1.verdict import Status

NUM_WINDOWS, LEAST = 8, 5
"""Windows that a curve is averaged over, roughly, and the fewest points of a window."""
Z = 1.96
"""Quantile of the normal distribution for a 95 % interval of a mean."""
_MEANINGS = {
    "loss": "loss",
    "reward_raw": "mean reward (certified speedup)",
    "reward_raw_std": "standard deviation of a step's rewards",
    "best_speedup": "mean over problems of the best certified speedup so far, 1 where there is "
    "none",
    "reward": "mean reward as it trains, smoothed (equation 6)",
    "success": "share of successes",
    "hacked": "share of answers that cheat",
    "reused": "share of verdicts that were known before",
    "whole": "share of answers with analysis, design and code",
    "copied": "share of answers to prompts with exemplars that copy what was shown",
    "progressed": "share of them that beat the best exemplar by 5 % or more",
    "over_best": "their mean speedup over the best exemplar, copies and failures as 0",
    "new": "share of answers with a program that was not known before",
    "distinct": "different programs in a group of answers",
    "resampled": "answers sampled again because another of their group equals them, per answer",
    "kl": "KL divergence from the start, nats",
    "entropy": "entropy, nats per token",
    "clip_ratio/region_mean": "share of tokens whose probability ratio the clip holds back",
    "idle": "share of a step in which its devices are idle",
    "step_s": "seconds of a step",
}
"""The numbers of a training step that are drawn, in this order, where a stage logged them."""
_DFT = "loss (dft: tokens weighted with their probability)"
_RANGES = {
    **dict.fromkeys(
        (
            "success",
            "hacked",
            "reused",
            "whole",
            "copied",
            "progressed",
            "new",
            "clip_ratio/region_mean",
            "idle",
        ),
        (0.0, 1.0),
    ),
    **dict.fromkeys(("kl", "entropy", "reward_raw_std", "step_s"), (0.0, None)),
}
"""Range of the numbers that have one; their intervals are clipped to it."""


def policy_figures(given: ReportInput) -> list[Figure]:
    """Return success and mean reward of the policy's held-out answers, stage by stage.

    Without any reward there is no figure of them: it would be empty.
    """
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
        rewards = part.group_by("problem_id", maintain_order=True).agg(pl.col("reward").mean())
        mean, half = _interval([float(value) for value in rewards["reward"].drop_nulls()])
        rows.append(
            {
                "policy": facts.policy_label(stage),
                "success": hits / part.height,
                "low": low,
                "high": high,
                "reward": mean,
                "least": mean - half,
                "most": mean + half,
            }
        )
    order = [row["policy"] for row in rows]
    lines = alt.Axis(title=None, labelAngle=0, labelExpr="split(datum.value, ' ')")
    x = alt.X("policy:N", sort=order, axis=lines)
    base = alt.Chart(pl.DataFrame(rows, infer_schema_length=None))
    interval = base.mark_rule(color=BLUE, strokeWidth=2).encode(
        x=x, y=alt.Y("low:Q", axis=alt.Axis(format="%", title="successful answers")), y2="high:Q"
    )
    share = base.mark_point(color=BLUE, filled=True, size=70, opacity=1).encode(x=x, y="success:Q")
    success = alt.LayerChart(layer=[interval, share])
    bars = base.mark_bar(color=PURPLE, width={"band": 0.5}).encode(
        x=x, y=alt.Y("reward:Q", axis=alt.Axis(title="mean reward"))
    )
    spread = base.mark_rule(color=INK, strokeWidth=2).encode(x=x, y="least:Q", y2="most:Q")
    reward = alt.LayerChart(layer=[bars, spread])
    figures = [
        figure_of(
            "policy-success",
            success,
            caption="Success of sampled answers on held-out problems, with 95 % intervals.",
        )
    ]
    if any(row["reward"] for row in rows):
        figures.append(
            figure_of(
                "policy-reward",
                reward,
                caption="Mean reward of the same answers: the certified speedup, 0 for a failure. "
                "Each problem counts the same; 95 % intervals over problems.",
            )
        )
    return figures


def _interval(values: list[float]) -> tuple[float, float]:
    """Return the mean, and half of its 95 % interval; zero and zero without values."""
    if len(values) < 2:
        return (values or [0.0])[0], 0.0
    return fmean(values), Z * stdev(values) / math.sqrt(len(values))


def learning_figures(given: ReportInput) -> list[Figure]:
    """Return a small chart for each training stage and number that it logged."""
    figures: list[Figure] = []
    for stage in facts.stages(given.steps):
        is_dft = given.provenance.params.get(f"{stage.split('@')[0]}.loss") == "dft"
        of_stage = given.steps.filter(pl.col("stage") == stage).sort("step")
        for name in _MEANINGS:
            curve = of_stage.filter(pl.col("name") == name, pl.col("value").is_finite())
            if curve.height > 1:
                figures.append(_learning_figure(stage, name, curve, is_dft=is_dft))
    return figures


def _learning_figure(stage: str, name: str, curve: pl.DataFrame, *, is_dft: bool) -> Figure:
    num_steps = curve.height
    points = thinned(curve)
    window = max(LEAST, points.height // NUM_WINDOWS) if points.height >= 3 * LEAST else 1
    base = alt.Chart(_smoothed(points, window, *_RANGES.get(name, (None, None)))).encode(
        x=alt.X("step:Q", axis=alt.Axis(title="step", tickMinStep=1, tickCount=6), scale=snug())
    )
    y = alt.Y("value:Q", axis=alt.Axis(title=None, tickCount=5), scale=alt.Scale(zero=False))
    raw = base.mark_line(color=MUTED, strokeWidth=1, opacity=0.45).encode(y=y)
    line = base.mark_line(color=BLUE, strokeWidth=2).encode(y="mean:Q")
    band = base.mark_area(color=BLUE, opacity=0.18, line=False).encode(y="low:Q", y2="high:Q")
    shown = (
        f"mean over {window} points and, if they are independent, its 95 % interval"
        if window > 1
        else f"as logged; {num_steps} steps are too few for an interval"
    )
    if points.height < num_steps:
        shown += f"; each point is a mean of {num_steps / points.height:.0f} of {num_steps:,} steps"
    meaning = _DFT if name == "loss" and is_dft else _MEANINGS[name]
    slug = "".join(char if char.isalnum() else "-" for char in f"curve-{stage}-{name}")
    return figure_of(
        slug,
        alt.LayerChart(layer=[raw, band, line] if window > 1 else [raw, line]),
        height=130,
        caption=f"{facts.policy_label(stage)}: {meaning} ({shown}).",
    )


def thinned(curve: pl.DataFrame) -> pl.DataFrame:
    """Return means of neighbours, where there are more steps than a small picture can show."""
    if curve.height <= NUM_POINTS:
        return curve.select("step", "value")
    part = pl.int_range(pl.len()) * NUM_POINTS // pl.len()
    parts = curve.group_by(part.alias("part"), maintain_order=True)
    return parts.agg(pl.col("step").mean(), pl.col("value").mean()).drop("part")


def _smoothed(
    points: pl.DataFrame, window: int, least: float | None, most: float | None
) -> pl.DataFrame:
    """Return points with the rolling mean and its interval, by Student's t.

    There is no interval where points are few.
    """
    around: dict[str, Any] = {"window_size": window, "min_samples": 1, "center": True}
    value, count = pl.col("value"), pl.lit(1.0)
    found = points.with_columns(
        mean=value.rolling_mean(**around),
        spread=value.rolling_std(**around),
        count=pl.repeat(count, pl.len()).rolling_sum(**around),
    )
    freedom = pl.col("count") - 1
    # Cornish and Fisher's expansion of Student's quantile about the normal one
    first = (Z**3 + Z) / 4
    second = (5 * Z**5 + 16 * Z**3 + 3 * Z) / 96
    quantile = Z + first / freedom + second / freedom**2
    half = pl.when(pl.col("count") >= LEAST // 2 + 1).then(
        quantile * pl.col("spread") / pl.col("count").sqrt()
    )
    mean = pl.col("mean")
    return found.select(
        "step",
        "value",
        "mean",
        low=(mean - half).clip(least, most),
        high=(mean + half).clip(least, most),
    )
