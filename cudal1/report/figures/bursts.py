"""The timing samples of one verdict as a picture: bursts, quads and buckets, in time order.

`cudal1.harness.timing.statistics` defines what a quad and a bucket say. A quad says the shortest
burst of the reference over the shortest of the candidate. A bucket says the median over quads that
follow one another.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import polars as pl

from cudal1.measurement import Role
from cudal1.report import facts
from cudal1.report.figures.figure import Figure, figure_of
from cudal1.report.figures.theme import BLUE, GREEN, MUTED, ORANGE, PURPLE
from cudal1.report.inputs import ReportInput
from cudal1.report.limits import NUM_QUADS
from cudal1.report.numbers import times
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP

ROLES = (Role.REFERENCE.value, Role.CANDIDATE.value)
WIDTH, BURSTS_HEIGHT, QUADS_HEIGHT = 238, 110, 90
"""Width and heights of the plotting areas, in pixels; the axis beside them takes the rest of a
figure's width."""
_AXIS_PX = 44
EXPLAINED = (
    "Above, what one call took in every burst, in ABBA or BAAB quads; below, the speedup that each "
    "quad says (its shortest reference burst over its shortest candidate burst) and the median of "
    "each time-ordered bucket. The estimate is the median of those."
)
"""Meaning of such a picture; said once where there are many."""


def closest_gain(given: ReportInput) -> pl.DataFrame:
    """Return the verdict with the smallest certified gain; without any gain, the smallest claim."""
    timed = facts.verdicts(given).filter(pl.col("certified").is_not_null())
    is_no_gain = pl.col("certified") <= MEANINGFUL_SPEEDUP
    return timed.sort(is_no_gain, "certified", "candidate_id").head(1)


def closest_figure(given: ReportInput) -> Figure | None:
    """Return the timing of the closest gain, where noise matters most."""
    rows = closest_gain(given).to_dicts()
    return burst_figure(given, rows[0], name="bursts", explained=EXPLAINED) if rows else None


def burst_figure(
    given: ReportInput, verdict: Mapping[str, Any], *, name: str, explained: str = ""
) -> Figure | None:
    """Return the bursts of a verdict's first measurement; None where none were handed over.

    Args:
        given: holds the samples, and the bucket medians among the details.
        verdict: its `candidate_id`, `speedup` and `certified`.
        name: the figure's name.
        explained: a text that the caption says, too.
    """
    samples = given.samples.filter(
        pl.col("candidate_id") == verdict["candidate_id"],
        pl.col("session") == 0,
        pl.col("role").is_in(ROLES),
    )
    if samples.is_empty():
        return None
    num_quads = samples["quad"].n_unique()
    step = -(-num_quads // NUM_QUADS)
    drawn = samples.filter(pl.col("quad") % step == 0)
    # a stall of the machine would flatten everything else
    ceiling = float(drawn["net_us"].quantile(0.98) or 0.0) * 1.25
    frame = drawn.filter(pl.col("net_us") <= ceiling)
    chart = alt.VConcatChart(
        vconcat=[_bursts(frame, num_quads), _quads(given, verdict, drawn, num_quads)], spacing=14
    ).resolve_scale(color="independent")
    num_hidden = drawn.height - frame.height
    notes = [f"every {_nth(step)} quad of {num_quads} is drawn"] if step > 1 else []
    notes += [f"{num_hidden} slow bursts lie above the frame"] if num_hidden else []
    caption = (
        f"Timing of candidate {verdict['candidate_id']}: estimated at {times(verdict['speedup'])}, "
        f"certified at {times(verdict['certified'])}."
    )
    left_out = f"Left out: {'; '.join(notes)}." if notes else ""
    return figure_of(name, chart, caption=" ".join(filter(None, (caption, explained, left_out))))


def _bursts(frame: pl.DataFrame, num_quads: int) -> alt.Chart:
    """Return the time of one call in each burst; a quad's four are side by side, in their order."""
    return (
        alt.Chart(
            _dashes(
                frame.select(pl.col("quad") + (pl.col("position") - 1.5) / 5, "net_us", "role"),
                0.08,
            ),
            width=WIDTH,
            height=BURSTS_HEIGHT,
        )
        .mark_line(strokeWidth=2.5, strokeCap="round", invalid="break-paths-show-path-domains")
        .encode(
            x=_time(num_quads, title=None),
            y=alt.Y(
                "y:Q",
                scale=alt.Scale(zero=False),
                axis=alt.Axis(title="one call, µs", tickCount=4, minExtent=_AXIS_PX),
            ),
            order="rank:Q",
            color=_colours("what", ROLES, (BLUE, ORANGE)),
        )
    )


def _quads(
    given: ReportInput, verdict: Mapping[str, Any], samples: pl.DataFrame, num_quads: int
) -> alt.Chart:
    """Return the speedup of each quad and bucket, beside what was certified."""
    shortest = samples.group_by("quad", maintain_order=True).agg(
        pl.col("net_us").filter(pl.col("role") == role).min().alias(role) for role in ROLES
    )
    quads = shortest.filter(pl.min_horizontal(*ROLES) > 0).select(
        pl.col("quad").cast(pl.Float64), pl.col(ROLES[0]) / pl.col(ROLES[1]), pl.lit("quad")
    )
    details = given.details.filter(pl.col("candidate_id") == verdict["candidate_id"])
    medians = (details["bucket_medians"].drop_nulls().to_list() or [[]])[0]
    edges = (
        [round(i * num_quads / len(medians)) for i in range(len(medians) + 1)] if medians else []
    )
    buckets = [
        _dashes(
            pl.DataFrame({"x": [(first + last - 1) / 2], "y": [middle], "what": ["bucket"]}),
            (last - first) / 2 - 0.1,
        )
        for first, last, middle in zip(edges, edges[1:], medians, strict=False)
    ]
    line = pl.DataFrame(
        {"x": [(num_quads - 1) / 2], "y": [verdict["certified"]], "what": ["certified"]}
    )
    rows = pl.concat([*buckets, _dashes(line, num_quads / 2), _dashes(quads, 0.12)])
    ranked = rows.with_columns(rank=pl.int_range(pl.len()))
    return (
        alt.Chart(ranked, width=WIDTH, height=QUADS_HEIGHT)
        .mark_line(strokeWidth=2.5, invalid="break-paths-show-path-domains")
        .encode(
            x=_time(num_quads, title="quad, in time order"),
            y=alt.Y(
                "y:Q",
                scale=alt.Scale(zero=False),
                axis=alt.Axis(
                    title="speedup", tickCount=4, labelExpr="datum.label + '×'", minExtent=_AXIS_PX
                ),
            ),
            order="rank:Q",
            color=_colours("what", ("bucket", "certified", "quad"), (PURPLE, GREEN, MUTED)),
        )
    )


def _dashes(points: pl.DataFrame, half: float) -> pl.DataFrame:
    """Return points (x, y, what) as short level strokes: many of them make one path."""
    named = points.rename(dict(zip(points.columns, ("x", "y", "what"), strict=True)))
    ends = named.with_row_index("point").join(
        pl.DataFrame({"end": [0, 1, 2], "by": [-half, half, half]}), how="cross"
    )
    return ends.sort("point", "end").select(
        pl.col("x") + pl.col("by"),
        pl.when(pl.col("end") < 2).then(pl.col("y")).alias("y"),
        "what",
        rank=pl.int_range(pl.len(), dtype=pl.Int64),
    )


def _time(num_quads: int, *, title: str | None) -> alt.X:
    axis = alt.Axis(title=title, tickMinStep=1, tickCount=6, labels=title is not None)
    return alt.X("x:Q", axis=axis, scale=alt.Scale(domain=[-0.7, num_quads - 0.3], nice=False))


def _colours(field: str, names: tuple[str, ...], colours: tuple[str, ...]) -> alt.Color:
    scale = alt.Scale(domain=list(names), range=list(colours))
    return alt.Color(f"{field}:N", scale=scale, legend=alt.Legend())


def _nth(step: int) -> str:
    return {2: "second", 3: "third"}.get(step, f"{step}th")
