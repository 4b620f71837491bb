"""What a stage appended since its last export, as JSON lines: the database's second life.

Written and flushed to disk before the database is, so that even a corrupt database costs nothing
that was judged or paid for. A line that a kill cut short was never acknowledged, and is skipped.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cudal1.ledger.rows import Row


class Journal:
    """The journal of one stage."""

    def __init__(self, folder: Path, stage: str) -> None:
        self._path = folder / "journal" / f"{stage}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = self._path.open("ab")

    @staticmethod
    def unfinished(folder: Path) -> list[Journal]:
        """Journals of stages that have not been exported."""
        found = sorted((folder / "journal").glob("*.jsonl"))
        return [Journal(folder, path.stem) for path in found if path.stat().st_size]

    def write(self, rows: Sequence[Row]) -> None:
        """Append rows, on disk when this returns."""
        lines = [
            json.dumps([row.table, row.key, row.values], default=_encode, ensure_ascii=True)
            for row in rows
        ]
        self._stream.write(("\n".join(lines) + "\n").encode())
        self._stream.flush()
        os.fdatasync(self._stream.fileno())

    def rows(self) -> Iterator[Row]:
        """Every row on disk."""
        for line in self._path.read_bytes().split(b"\n"):
            try:
                table, key, values = json.loads(line, object_hook=_decode)
            except ValueError:  # the last line of a killed writer, or the empty end
                continue
            yield Row(table, key, values)

    def discard(self) -> None:
        """Forget everything: the stage's shard has it now."""
        self._stream.truncate(0)
        os.fdatasync(self._stream.fileno())

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


def _encode(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value)} does not go into a journal")


def _decode(pairs: dict[str, Any]) -> Any:
    return base64.b64decode(pairs["base64"]) if set(pairs) == {"base64"} else pairs
