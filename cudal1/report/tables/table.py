"""Defines Table: headings and cells as text, and its renderer to Markdown.

`page.html.j2` renders tables to HTML. Cells are plain text that may be hostile; each renderer
escapes for its own language.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Self

from pydantic import model_validator

from cudal1.record import Record


class RowKind(StrEnum):
    """A style that sets a row apart."""

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
    """A sentence that says what was counted, and by which convention."""
    columns: tuple[str, ...]
    num_text_columns: int = 1
    """Number of columns, from the left, that hold text; the others hold numbers, aligned to the
    right."""
    rows: tuple[Row, ...]
    nothing_yet: str
    """Text in place of a table without rows."""
    is_folded: bool = False
    """True if the page folds the table, since it says what another one says, by another
    convention."""

    @model_validator(mode="after")
    def _rows_fit(self) -> Self:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(
                    f"{self.title}: {len(row.cells)} cells, {len(self.columns)} columns"
                )
        return self


def table_markdown(table: Table) -> str:
    """Return the table in GitHub's Markdown: title, table (or the line in its place), caption."""
    if not table.rows:
        return f"### {markdown_text(table.title)}\n\n*{markdown_text(table.nothing_yet)}*\n"
    texts = table.num_text_columns
    rules = [":--" if i < texts else "--:" for i in range(len(table.columns))]
    lines = [table.columns, *(row.cells for row in table.rows)]
    head, *body = ["| " + " | ".join(markdown_text(cell) for cell in line) + " |" for line in lines]
    return "\n".join(
        [
            f"### {markdown_text(table.title)}",
            "",
            head,
            "| " + " | ".join(rules) + " |",
            *body,
            "",
            markdown_text(table.caption),
            "",
        ]
    )


def markdown_text(text: str) -> str:
    """Return the text as Markdown that shows it to the letter, on one line."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    escaped = flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"([\\`*_\[\]|~!#$@])", _escape_markdown, escaped)


def _escape_markdown(match: re.Match[str]) -> str:
    # GitHub turns a bare @name into a mention even after a backslash
    return "&#64;" if match[1] == "@" else "\\" + match[1]
