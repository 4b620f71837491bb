"""Read answers as models write them, each saved with the source or the reason that it must give.

`KIND/NAME.answer` is an answer, to the byte. Beside the answer stands either `NAME.source`, the
source that must come out of it, or `NAME.reason`, the reason why there is none. A person decided
what is right, from the answer, as one would copy code from it. `python -m
benchmarks.answers.extraction` prints a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class SavedAnswer:
    """An answer with its expectation; exactly one of `source` and `reason` is set."""

    kind: str
    name: str
    text: str
    source: str | None
    reason: str | None


def saved_answers() -> list[SavedAnswer]:
    """Return all saved answers, by kind and name."""
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
    """Return a file's text, with its line ends and byte order mark; None if there is no file."""
    return path.read_bytes().decode("utf-8") if path.exists() else None
