"""Answers as models write them, saved with what must become of each.

`KIND/NAME.answer` is an answer, to the byte. Beside it stands either `NAME.source`, the source that
must come out of it, or `NAME.reason`, the reason why there is none. What is right was decided from
the answer, as a person would copy code from it; `python -m benchmarks.extraction` prints a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class SavedAnswer:
    """One answer; exactly one of `source` and `reason` is set."""

    kind: str
    name: str
    text: str
    source: str | None
    reason: str | None


def saved_answers() -> list[SavedAnswer]:
    """All of them, by kind and name."""
    return [
        SavedAnswer(
            kind=path.parent.name,
            name=path.stem,
            text=_content(path) or "",
            source=_content(path.with_suffix(".source")),
            reason=(_content(path.with_suffix(".reason")) or "").strip() or None,
        )
        for path in sorted(FOLDER.glob("*/*.answer"))
    ]


def _content(path: Path) -> str | None:
    """What stands in a file, with its line ends and byte order mark; None if there is no file."""
    return path.read_bytes().decode("utf-8") if path.exists() else None
