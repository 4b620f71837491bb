"""Words that a candidate chose, made fit to be shown."""

from __future__ import annotations

MAX_CHARACTERS = 500


def one_line(text: str) -> str:
    """One line of what can be printed of it, not too long."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:MAX_CHARACTERS]
