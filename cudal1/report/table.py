"""Table: headings and cells as text, and the one renderer to Markdown (`page.html.j2` has HTML's).

Cells are plain text that may be hostile; each renderer escapes for its own language.
"""

# ruff: noqa: RUF001 (× and – are what readers see)
from __future__ import annotations

import re
from enum import StrEnum
from typing import Self

from pydantic import model_validator

from cudal1.record import Record


class RowKind(StrEnum):
    """How a row is set apart."""

    PLAIN = "plain"
    TOTAL = "total"
    NULL_TEST = "null"
    PAPER = "paper"
    """Numbers of the paper, for orientation."""


class Row(Record):
    """One row."""

    cells: tuple[str, ...]
    kind: RowKind = RowKind.PLAIN


class Table(Record):
    """A table, ready to be shown."""

    title: str
    caption: str
    """What was counted, and by which convention."""
    columns: tuple[str, ...]
    num_text_columns: int = 1
    """So many columns from the left hold text; the others hold numbers, aligned to the right."""
    rows: tuple[Row, ...]
    nothing_yet: str
    """What is said in place of a table without rows."""
    is_folded: bool = False
    """Whether the page shows it to those only who ask: it says what another one says, otherwise."""

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(
                    f"{self.title}: {len(row.cells)} cells, {len(self.columns)} columns"
                )
        return self


def table_markdown(table: Table) -> str:
    """The table in GitHub's Markdown: title, table (or the line in its place), caption."""
    if not table.rows:
        return f"### {markdown_text(table.title)}\n\n*{markdown_text(table.nothing_yet)}*\n"
    texts = table.num_text_columns
    rules = [":--" if i < texts else "--:" for i in range(len(table.columns))]
    lines = [table.columns, *(row.cells for row in table.rows)]
    head, *body = ["| " + " | ".join(markdown_text(cell) for cell in line) + " |" for line in lines]
    return "\n".join([
        f"### {markdown_text(table.title)}", "", head, "| " + " | ".join(rules) + " |", *body, "",
        markdown_text(table.caption), "",
    ])  # fmt: skip


def markdown_text(text: str) -> str:
    """The text as Markdown that shows it to the letter, on one line."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    escaped = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~!#$@])", _escape_markdown, escaped)


def _escape_markdown(match: re.Match[str]) -> str:
    # GitHub turns a bare @name into a mention even after a backslash
    return "&#64;" if match[1] == "@" else "\\" + match[1]


def times(value: float | None) -> str:
    """A speedup: `1.42×`; a dash for none."""
    if value is None:
        return "–"
    return f"{value:.0f}×" if value >= 100 else f"{value:.3g}×" if value >= 10 else f"{value:.2f}×"


def share(part: int, whole: int) -> str:
    """`12 (40 %)`; a dash when the whole is nothing."""
    return f"{part:,} ({percent(part / whole)})" if whole else "–"


def percent(value: float) -> str:
    """`40 %`, with a digit more close to nothing and to everything."""
    return (
        f"{value:.1%}".replace("%", " %")
        if 0 < value < 0.02 or 0.99 < value < 1
        else (f"{value * 100:.0f} %")
    )
