"""Colours of page and figures, light and dark, and how a chart becomes an SVG that follows both.

A figure is drawn in the light colours. Its dark dress is CSS that matches those colours where they
stand in the SVG's attributes, so one file serves both, inline or alone, and is plain SVG elsewhere.
"""

from __future__ import annotations

import re
from typing import Any

INK, MUTED, GRID = "#1f2328", "#59636e", "#d1d9e0"
BLUE, ORANGE, GREEN, PURPLE, RED = "#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED, MUTED)

DARK = {
    INK: "#e6edf3", MUTED: "#9198a1", GRID: "#30363d", BLUE: "#58a6ff", ORANGE: "#f0883e",
    GREEN: "#3fb950", PURPLE: "#bc8cff", RED: "#ff7b72",
}  # fmt: skip
"""Light colour to dark colour."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"

_CONFIG: dict[str, Any] = {
    "background": None,
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED, "titleColor": MUTED, "gridColor": GRID, "domainColor": GRID,
        "tickColor": GRID, "labelFontSize": 11, "titleFontSize": 11, "titleFontWeight": "normal",
        "titlePadding": 6,
    },
    "legend": {
        "labelColor": INK, "titleColor": MUTED, "labelFontSize": 11, "titleFontSize": 11,
        "orient": "top", "title": None, "symbolStrokeWidth": 2, "labelLimit": 200, "columns": 3,
        "offset": 6,
    },
    "range": {"category": list(SERIES)},
}  # fmt: skip


def svg_of(chart: dict[str, Any]) -> str:
    """The Vega-Lite chart as an SVG element, without ids: several may stand in one page."""
    import vl_convert

    drawn = vl_convert.vegalite_to_svg({**chart, "config": _CONFIG})  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    assert isinstance(drawn, str)
    # marks with clip=True would bring ids, numbered by the process
    assert "<clipPath" not in drawn
    return drawn


def standalone(svg: str) -> str:
    """The SVG as a file of its own that follows the reader's light or dark preference."""
    style = f"<style>@media (prefers-color-scheme: dark) {{{dark_css()}}}</style>"
    return re.sub(r"^(<svg[^>]*>)", lambda m: m[1] + style, svg, count=1) + "\n"


def dark_css() -> str:
    """Rules that dress figures for a dark page."""
    return "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}'
        for light, dark in DARK.items()
    )
