"""Read the journal of a stage from outside, while the stage may be killed at any moment.

A line is whole when its end of line is written. An append returns later, when the database has the
line as well, and appends take turns. So all whole lines but the last were acknowledged. The last
one perhaps was: the next stage finds it, a reader may not. A line without an end is what a kill has
left of an append that never returned: it does not count, whatever words it already holds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any


def whole_lines(folder: Path, stage: str) -> list[bytes]:
    """Return the whole lines of a stage's journal, none where there is no journal."""
    path = folder / "journal" / f"{stage}.jsonl"
    content = path.read_bytes() if path.exists() else b""
    return content.split(b"\n")[:-1]


def acknowledged(lines: list[bytes]) -> list[bytes]:
    """Return the whole lines that were certainly acknowledged: another line came after each."""
    return lines[:-1]


def verdicts_in(lines: list[bytes]) -> dict[str, str]:
    """Return when each verdict in the lines was made, as `times_of` does."""
    return times_of(_verdict_rows(lines))


def times_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return when each verdict was made and its seconds, by candidate and protocol."""
    return {
        f"{row['candidate_id']}/{row['protocol_id']}": f"{row['judged_at']}/{row['judge_s']}"
        for row in rows
    }


def _verdict_rows(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for line in lines:
        for table, columns, rows, _ in json.loads(line).get("batches", ()):
            if table == "verdicts":
                yield from (dict(zip(columns, row, strict=True)) for row in rows)
