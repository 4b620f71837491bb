"""Colours of page and figures, light and dark, and SVGs of charts that follow both.

A figure is drawn in the light colours. Its dark version is CSS that matches those colours where
they stand in the SVG's attributes. So one file serves both, inline or alone, and is plain SVG
elsewhere.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

INK, MUTED, GRID = "#1f2328", "#59636e", "#d1d9e0"
BLUE, ORANGE, GREEN, PURPLE, RED = "#0969da", "#bc4c00", "#1a7f37", "#8250df", "#cf222e"
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED, MUTED)

DARK = {
    INK: "#e6edf3",
    MUTED: "#9198a1",
    GRID: "#30363d",
    BLUE: "#58a6ff",
    ORANGE: "#f0883e",
    GREEN: "#3fb950",
    PURPLE: "#bc8cff",
    RED: "#ff7b72",
}
"""Light colour to dark colour."""

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"

SVG = "http://www.w3.org/2000/svg"
ElementTree.register_namespace("", SVG)

_CONFIG: dict[str, Any] = {
    "background": None,
    "aria": False,  # a label for each mark says the same thing hundreds of times; the whole has one
    "font": FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
        "titlePadding": 6,
    },
    "legend": {
        "labelColor": INK,
        "titleColor": MUTED,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "orient": "top",
        "title": None,
        "symbolStrokeWidth": 2,
        "labelLimit": 200,
        "columns": 3,
        "offset": 6,
    },
    "range": {"category": list(SERIES)},
}


_NOISE = {
    "aria-hidden": "true",
    "pointer-events": "none",
    "opacity": "1",
    "font-weight": "normal",
    "stroke-width": "1",
    "x2": "0",
    "y2": "0",
    "font-family": FONT,
}
"""Attributes at their default values, once the root sets the font."""
_HOLLOW = {"M0,0h0v0h0Z", "", None}
"""Paths that draw nothing."""


def svg_of(chart: dict[str, Any], label: str) -> str:
    """Return the Vega-Lite chart as an SVG element without ids: several may stand in one page.

    `label` is what a screen reader says in place of the picture.
    """
    import vl_convert

    drawn = vl_convert.vegalite_to_svg({**chart, "config": _CONFIG})  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    assert isinstance(drawn, str)
    # marks with clip=True would bring ids, numbered by the process
    assert "<clipPath" not in drawn
    return _lean(drawn, label)


def _lean(svg: str, label: str) -> str:
    """Return the same picture in about half the bytes."""
    root = ElementTree.fromstring(svg)
    for name in ("version", "class"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": label, "font-family": FONT}
    for parent in list(root.iter()):
        for child in list(parent):
            _strip(child)
            is_path = child.tag.endswith("path")
            if is_path and child.get("d") in _HOLLOW and not len(child):
                parent.remove(child)
    return ElementTree.tostring(root, encoding="unicode")


def _strip(element: ElementTree.Element) -> None:
    for name in ("class", "role", "aria-roledescription", "display"):
        element.attrib.pop(name, None)
    for name, value in list(element.attrib.items()):
        if _NOISE.get(name) == value:
            del element.attrib[name]
        elif name in ("d", "transform"):
            element.set(name, re.sub(r"-?\d+\.\d+", _rounded, value))


def _rounded(match: re.Match[str]) -> str:
    return f"{float(match[0]):.1f}".removesuffix(".0")


def standalone(svg: str) -> str:
    """Return the SVG as a file of its own that follows the reader's light or dark preference."""
    style = f"<style>@media (prefers-color-scheme: dark) {{{dark_css()}}}</style>"
    return re.sub(r"^(<svg[^>]*>)", lambda m: m[1] + style, svg, count=1) + "\n"


def dark_css() -> str:
    """Return CSS rules that give figures their colours on a dark page."""
    return "".join(
        f'[fill="{light}"]{{fill:{dark}}}[stroke="{light}"]{{stroke:{dark}}}'
        for light, dark in DARK.items()
    )
