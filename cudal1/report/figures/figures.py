"""Figures of results: frames → altair charts → SVG. `facts` decides what is counted.

Each function gives a Figure, or None when there is nothing to draw yet. Figures of training are in
`curves`, of one verdict's timing in `bursts`.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from typing import Any

import altair as alt
import polars as pl

from cudal1.problem import Split
from cudal1.report import facts
from cudal1.report.figures.figure import HEIGHT, WIDTH, Figure, figure_of
from cudal1.report.figures.theme import BLUE, GREEN, MUTED, ORANGE, RED
from cudal1.report.inputs import ReportInput
from cudal1.report.tables import tallies
from cudal1.verdict import Status


def speedup_figure(
    given: ReportInput, *, width: int = WIDTH, height: int = HEIGHT
) -> Figure | None:
    """Return the share of problems that reach a speedup, beside the null test's."""
    best = facts.best(given)
    parts = {
        "held out": best.filter(pl.col("split") == Split.HELDOUT.value)["certified"].to_list(),
        "train": best.filter(pl.col("split") == Split.TRAIN.value)["certified"].to_list(),
        "null test": facts.null_speedups(given),
    }
    found = [value for speedups in parts.values() for value in speedups if value]
    start = 0.9 * min([1.0, *found])
    rows = [row for label, speedups in parts.items() for row in _reach(label, speedups, start)]
    if not any(row["set"] != "null test" for row in rows):
        return None
    colours = {"held out": ORANGE, "train": BLUE, "null test": MUTED}
    shown = [label for label in colours if any(row["set"] == label for row in rows)]
    chart = (
        alt.Chart(pl.DataFrame(rows))
        .mark_line(interpolate="step-before", strokeWidth=2)
        .encode(
            x=_speedup_axis("certified speedup of the best candidate", [start, *found]),
            y=alt.Y("share:Q", axis=alt.Axis(format="%", title="problems at least so fast")),
            color=_colour("set", shown, [colours[label] for label in shown]),
            order="rank:Q",
        )
    )
    return figure_of(
        "speedups",
        chart,
        width=width,
        height=height,
        caption="Share of problems whose best candidate is at least so fast. The null test, where "
        "nothing can be gained, should fall to zero at 1×.",
    )


def _reach(label: str, speedups: list[float | None], start: float) -> list[dict[str, Any]]:
    """Return corners of a falling step curve: the share at least as fast as each value.

    The curve begins at `start`.
    """
    found = sorted(value for value in speedups if value)
    if not found:
        return []
    values = [start, *found, found[-1]]
    counts = [len(found), *range(len(found), -1, -1)]
    return [
        {"set": label, "speedup": value, "share": count / len(speedups), "rank": rank}
        for rank, (value, count) in enumerate(zip(values, counts, strict=True))
    ]


def success_speedup_figure(given: ReportInput) -> Figure | None:
    """Return the distribution of certified speedups over all distinct successful candidates."""
    found = facts.verdicts(given).filter(
        pl.col("status") == Status.CORRECT.value, pl.col("certified") > 0
    )
    if found.is_empty():
        return None
    # bins of equal width on the logarithmic axis, with one edge at 1: slower is told from faster
    steps_per_octave = 4
    binned = (
        found.with_columns(bin=(pl.col("certified").log(2) * steps_per_octave).floor())
        .group_by("bin")
        .len("count")
        .sort("bin")
        .with_columns(
            low=2.0 ** (pl.col("bin") / steps_per_octave),
            high=2.0 ** ((pl.col("bin") + 1) / steps_per_octave),
            zero=0,
            side=pl.when(pl.col("bin") < 0).then(pl.lit("slower")).otherwise(pl.lit("not slower")),
        )
    )
    edges = [*binned["low"].to_list(), *binned["high"].to_list()]
    chart = (
        alt.Chart(binned)
        .mark_bar(binSpacing=1)
        .encode(
            x=_speedup_axis("certified speedup", edges, field="low"),
            x2="high:Q",
            y=alt.Y("count:Q", axis=alt.Axis(title="candidates", tickMinStep=1)),
            y2="zero:Q",
            color=_colour("side", ["slower", "not slower"], [RED, GREEN]),
        )
    )
    return figure_of(
        "successes",
        chart,
        caption="Certified speedups of all distinct successful candidates. What could not be "
        "told from the reference is certified at exactly 1×, the first green bar.",
    )


def spread_figure(given: ReportInput) -> Figure | None:
    """Return the distribution of the spread of each measurement's buckets."""
    limit = given.provenance.protocol.max_bucket_variance**0.5
    timed = facts.verdicts(given).filter(pl.col("bucket_variance").is_not_null())
    if timed.is_empty():
        return None
    # a spread of zero has no place on a logarithmic axis
    spread = facts.spread(given.provenance.protocol)
    spreads = timed.select(spread=spread.clip(lower_bound=1e-5))
    binned = (
        spreads.with_columns(bin=(pl.col("spread").log10() * 5).floor())
        .group_by("bin")
        .len("count")
        .sort("bin")
        .with_columns(
            low=10.0 ** (pl.col("bin") / 5), high=10.0 ** ((pl.col("bin") + 1) / 5), zero=0
        )
    )
    decades = [10.0**power for power in range(-5, 2)]
    axis = alt.Axis(title="spread of bucket medians", format="~g", values=decades)
    bars = (
        alt.Chart(binned)
        .mark_bar(color=BLUE, binSpacing=1)
        .encode(
            x=alt.X("low:Q", axis=axis, scale=alt.Scale(type="log")),
            x2="high:Q",
            y=alt.Y("count:Q", axis=alt.Axis(title="measurements", tickMinStep=1)),
            y2="zero:Q",
        )
    )
    gate = (
        alt.Chart(pl.DataFrame({"limit": [limit]}))
        .mark_rule(color=RED, strokeDash=[4, 3], strokeWidth=2)
        .encode(x="limit:Q")
    )
    return figure_of(
        "spread",
        alt.LayerChart(layer=[bars, gate]),
        caption=f"Spread of each measurement's buckets, {tallies.spread_meaning(given)}. Right of "
        f"the dashed line ({limit:.3f}) a measurement is unstable and earns 1×.",
    )


def _speedup_axis(title: str, speedups: list[float], *, field: str = "speedup") -> alt.X:
    """Return a logarithmic axis with a tick at 1×, and finer ticks where speedups span little."""
    octaves = [2.0**power for power in range(-10, 14)]
    fine = [0.25, 0.5, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 4.0]
    ticks = octaves if max(speedups) > 6 * min(speedups) else fine
    axis = alt.Axis(title=title, labelExpr="datum.value + '×'", values=ticks, labelOverlap=True)
    return alt.X(f"{field}:Q", axis=axis, scale=alt.Scale(type="log", base=2, nice=False))


def _colour(field: str, names: list[str], colours: list[str]) -> alt.Color:
    return alt.Color(
        f"{field}:N", scale=alt.Scale(domain=names, range=colours), legend=alt.Legend()
    )
