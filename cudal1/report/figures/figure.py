"""Defines Figure: a drawn chart with its caption, in a size that page and phone can show."""

from __future__ import annotations

import altair as alt

from cudal1.record import Record
from cudal1.report.figures.theme import svg_of

Chart = alt.Chart | alt.LayerChart | alt.VConcatChart | alt.FacetChart
WIDTH, HEIGHT = 300, 190
"""Width and height of the plotting area, in pixels."""


class Figure(Record):
    """A drawn figure."""

    name: str
    """Slug; unique on the page."""
    caption: str
    svg: str


def figure_of(
    name: str, chart: Chart, *, caption: str, width: int = WIDTH, height: int = HEIGHT
) -> Figure:
    """Return the figure of a chart.

    Figures are narrow, so that a phone shows them without shrinking their text; a wide page puts
    several in a row. In a chart of several charts, each has been given its size.
    """
    if not isinstance(chart, (alt.VConcatChart, alt.FacetChart)):
        fit = alt.AutoSizeParams(type="fit-x", contains="padding")
        chart = chart.properties(width=width, height=height, autosize=fit)
    said, _, _ = caption.partition(". ")
    return Figure(name=name, caption=caption, svg=svg_of(chart.to_dict(), f"Chart. {said}"))


def snug() -> alt.Scale:
    """Return a linear scale that ends where the numbers end, and need not start at zero."""
    return alt.Scale(nice=False, zero=False)
