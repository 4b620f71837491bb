"""A source of several files as one text, and back.

A problem or candidate is one text in every record, prompt and worker, so that the text that is
shown is the text that runs. A folder's other files follow the main one, each behind a line that
names it:

    # cudal1: file helpers.py

A text without such a line is one file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

MAIN = ""
"""The name of the first file of a text, which has none of its own."""
_HEADER = re.compile(r"^# cudal1: file ((?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.py)\n", re.MULTILINE)


def join(main: str, others: Mapping[str, str]) -> str:
    """Return the text that holds `main` and the other files, by their paths in the folder."""
    parts = [main]
    for path, text in sorted(others.items()):
        if not _HEADER.match(header := f"# cudal1: file {path}\n"):
            raise ValueError(f"{path}: not the path of a Python module")
        parts.append(f"{header}{text}")
    return "".join(part if part.endswith("\n") else f"{part}\n" for part in parts[:-1]) + parts[-1]


def cut(text: str) -> tuple[str, str]:
    """Return the main file of a text, and the rest."""
    found = _HEADER.search(text)
    at = found.start() if found else len(text)
    return text[:at], text[at:]


def split(text: str) -> dict[str, str]:
    """Return the files of a text by their paths; the main one is called `MAIN`."""
    main, *rest = _HEADER.split(text)
    return {MAIN: main, **dict(zip(rest[::2], rest[1::2], strict=True))}
