"""What became of a file of candidates, for a person and for machines."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from statistics import fmean, median

from cudal1.cli.judge_many import Batch
from cudal1.cli.settings import Settings
from cudal1.cli.show import Row, show
from cudal1.cli.verdict_file import Judged
from cudal1.verdict import Status

MEANINGFUL = 1.01
"""From here on a speedup counts, as in the paper's tables."""


def show_batch(batch: Batch, settings: Settings, out: Path) -> None:
    """Print the counts, by level."""
    num_old = len(batch.judged) - batch.num_new
    said = f"{len(batch.judged)} candidates: {batch.num_new} judged now, {num_old} before"
    if batch.stopped:
        said = f"PARTIAL, {batch.stopped}: {said}"
    rows = [Row("verdicts", said, "yellow" if batch.stopped else "")]
    for level in sorted({judged.level for judged in batch.judged}):
        mine = [judged for judged in batch.judged if judged.level == level]
        rows.append(Row(f"level {level}", _line(mine)))
    if batch.num_without:
        rows.append(Row("without", f"{batch.num_without} of {batch.num_rows} rows", "red"))
    on = f"{batch.device_kind}, protocol {settings.name} {settings.protocol.id}"
    show([*rows, Row("judged on", on), Row("written to", str(out))])


def as_text(batch: Batch, settings: Settings, out: Path) -> str:
    """The same as JSON; the verdicts themselves are in the file."""
    return json.dumps(
        {
            "num_rows": batch.num_rows, "num_without": batch.num_without,
            "num_candidates": len(batch.judged), "num_new": batch.num_new,
            "statuses": _statuses(batch.judged), "is_complete": not batch.stopped,
            "complaints": batch.complaints, "device_kind": batch.device_kind,
            "protocol_id": settings.protocol.id, "out": str(out),
        },
        indent=2,
    )  # fmt: skip


def _statuses(judged: list[Judged]) -> dict[str, int]:
    counts = Counter(each.verdict.status for each in judged)
    return {status.value: counts[status] for status in Status if counts[status]}


def _line(judged: list[Judged]) -> str:
    counts = ", ".join(
        f"{count} {status.replace('_', ' ')}" for status, count in _statuses(judged).items()
    )
    speedups = [each.verdict.speedup for each in judged if each.verdict.speedup is not None]
    if not speedups:
        return counts
    faster = sum(speedup > MEANINGFUL for speedup in speedups)
    return (
        f"{counts}; {faster} certified above {MEANINGFUL}; of the correct ones mean "
        f"{fmean(speedups):.2f}x, median {median(speedups):.2f}x"
    )
