"""Text of a candidate's choice, made fit to be shown."""

from __future__ import annotations

MAX_CHARACTERS = 500


def one_line(text: str) -> str:
    """Return the printable characters of a text as one line, at most `MAX_CHARACTERS` long."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MAX_CHARACTERS]
