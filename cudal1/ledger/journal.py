"""The journal of a stage: its appends since the last export, as JSON lines beside the database.

One line is one append, written and flushed to disk before the database is, so that even a corrupt
database loses nothing that was judged or paid for. A line that a kill or a full disk cut short was
never acknowledged: it is cut off before the next one is written.

A line is `{"run": …}` (first), `{"batches": [[table, columns, rows, keys], …]}`, or `{"adopted":
[kind, key]}`.
"""

from __future__ import annotations

import base64
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudal1.errors import StoreError
from cudal1.ledger import schema
from cudal1.ledger.rows import Batch

log = logging.getLogger("cudal1")


@dataclass(frozen=True)
class Entry:
    """One line of a journal."""

    run: str | None
    """Name of the stage's run; set in the first line only."""
    batches: tuple[Batch, ...]
    adopted: tuple[str, str] | None
    """Kind and key of a fact that was in the ledger already, and that the stage uses, too."""
    end: int
    """End of the line, in bytes from the start."""


class Journal:
    """The journal of one stage, open for writing."""

    def __init__(self, folder: Path, stage: str) -> None:
        self._path = folder / "journal" / f"{stage}.jsonl"
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        whole = max((entry.end for entry in entries(self._path)), default=0)
        os.ftruncate(self._descriptor, whole)

    @property
    def run(self) -> str | None:
        """The run of the journal; None when it is empty."""
        return next((entry.run or "" for entry in entries(self._path)), None)

    def start(self, run: str) -> None:
        """Remove all lines, and begin the journal of `run`."""
        self.discard()
        self._write({"run": run}, sync=True)

    def append(self, batches: Sequence[Batch]) -> int:
        """Write one append to the disk; return the journal's length in bytes."""
        lines = [[b.table, b.columns, b.rows, b.keys] for b in batches]
        return self._write({"batches": lines}, sync=True)

    def adopt(self, kind: str, key: str) -> int:
        """Note that the stage used a fact; survives a kill of the process, not of the machine."""
        return self._write({"adopted": [kind, key]}, sync=False)

    def entries(self) -> Iterator[Entry]:
        """Return all entries on disk."""
        return entries(self._path)

    def discard(self) -> None:
        """Remove all lines: the stage's shard holds their facts."""
        os.ftruncate(self._descriptor, 0)
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def _write(self, content: dict[str, Any], *, sync: bool) -> int:
        line = json.dumps(content, default=_encode, separators=(",", ":")).encode() + b"\n"
        before = os.fstat(self._descriptor).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            if sync:
                os.fdatasync(self._descriptor)
        except OSError as error:
            os.ftruncate(self._descriptor, before)
            raise StoreError(
                f"{self._path}: cannot be written ({error.strerror}); free some space and run "
                "again, what was judged so far is kept"
            ) from error
        return before + len(line)


def unfinished(folder: Path) -> list[tuple[str, Path]]:
    """Return stage and journal of every stage that began and was not exported."""
    found = sorted((folder / "journal").glob("*.jsonl"))
    return [(path.stem, path) for path in found if path.stat().st_size]


def _names(table: str, columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(schema.present_name(table, name) for name in columns)


def entries(path: Path, *, after: int = 0) -> Iterator[Entry]:
    """Yield the whole lines of a journal that end behind byte `after`."""
    end = after
    with path.open("rb") as stream:
        stream.seek(after)
        for line in stream:
            end += len(line)
            if not line.endswith(b"\n"):
                return  # cut short, so never acknowledged
            try:
                content = json.loads(line, object_hook=_decode)
                batches = tuple(
                    Batch(table, _names(table, columns), tuple(map(tuple, rows)), tuple(keys))
                    for table, columns, rows, keys in content.get("batches", ())
                )
                adopted = content.get("adopted")
            except (ValueError, AttributeError, TypeError):
                log.warning(
                    "ledger: %s: the line that ends at byte %d is damaged, left out", path, end
                )
                continue
            yield Entry(content.get("run"), batches, tuple(adopted) if adopted else None, end)


def _encode(value: object) -> dict[str, str]:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value)} does not go into a journal")


def _decode(pairs: dict[str, Any]) -> Any:
    return base64.b64decode(pairs["base64"]) if set(pairs) == {"base64"} else pairs
