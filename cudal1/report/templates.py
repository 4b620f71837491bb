"""Fill in the templates of pages that stand alone: one file, no script, all words escaped."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from cudal1.files.python_file import visible
from cudal1.report.figures.figure import Figure
from cudal1.report.figures.theme import dark_css
from cudal1.report.numbers import times

STYLE = "style.css"


def filled(template: str, **given: object) -> str:
    """Return a template's page; equal input makes equal bytes.

    Beside what is given, a template has `style`, `dark_figures` and `svg(figure)`.
    """
    environment = Environment(
        loader=FunctionLoader(_packaged),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"times": times, "visible": visible}
    return environment.get_template(template).render(
        **given, style=Markup(_packaged(STYLE)), dark_figures=Markup(dark_css()), svg=_svg
    )


def _svg(figure: Figure) -> Markup:
    return Markup(figure.svg)


def _packaged(name: str) -> str:
    return (files("cudal1.report") / name).read_text(encoding="utf-8")
