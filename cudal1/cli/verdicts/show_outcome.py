"""Shows the results of judging a file of candidates, to a person and to machines."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import fmean, median

from cudal1.baseline import Baseline
from cudal1.cli.options.settings import Settings
from cudal1.cli.terminal.answer import json_text
from cudal1.cli.verdicts.outcome import Outcome
from cudal1.cli.verdicts.show import Row, show
from cudal1.cli.verdicts.verdict_file import Judged
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP
from cudal1.verdict import Status


def show_outcome(outcome: Outcome, settings: Settings, out: Path) -> None:
    """Print the counts, by level."""
    num_old = len(outcome.judged) - outcome.num_new
    said = f"{len(outcome.judged)} candidates: {outcome.num_new} judged now, {num_old} before"
    if not outcome.num_rows:
        said = f"{len(outcome.baselines)} on references"
    if outcome.stopped:
        said = f"PARTIAL, {outcome.stopped}: {said}"
    rows = [Row("verdicts", said, "yellow" if outcome.stopped else "")]
    for level in sorted({judged.level for judged in outcome.judged}):
        mine = [judged for judged in outcome.judged if judged.level == level]
        rows.append(Row(f"level {level}", _line(mine)))
    for baseline in Baseline:
        if mine := outcome.of(baseline):
            rows.append(Row(baseline, _line(mine)))
    if repeated := _num_repeated(outcome):
        said = f"{repeated} of {outcome.num_rows} rows: their verdict is another row's"
        rows.append(Row("repeated", said))
    if outcome.num_without:
        rows.append(Row("without", f"{outcome.num_without} of {outcome.num_rows} rows", "red"))
    if outcome.num_references_without:
        rows.append(Row("without", f"{outcome.num_references_without} references", "red"))
    on = f"{outcome.device_kind}, protocol {settings.name} {settings.protocol.id}"
    show([*rows, Row("judged on", on), Row("written to", str(out))])


def as_text(outcome: Outcome, settings: Settings, out: Path) -> str:
    """Return the counts as JSON; the verdicts themselves are in the file."""
    return json_text(
        {
            "num_rows": outcome.num_rows,
            "num_without": outcome.num_without,
            "num_repeated": _num_repeated(outcome),
            "num_candidates": len(outcome.judged),
            "num_new": outcome.num_new,
            "statuses": _statuses(outcome.judged),
            "baselines": {
                baseline.value: _statuses(mine)
                for baseline in Baseline
                if (mine := outcome.of(baseline))
            },
            "num_references_without": outcome.num_references_without,
            "is_complete": not outcome.stopped,
            "complaints": outcome.complaints,
            "device_kind": outcome.device_kind,
            "protocol_id": settings.protocol.id,
            "out": str(out),
        },
        indent=2,
    )


def _num_repeated(outcome: Outcome) -> int:
    """Return the number of rows that repeat an earlier row with a verdict.

    A row repeats another with the same problem and source. So each row has a verdict of its own,
    repeats another, or is without one.
    """
    return outcome.num_rows - outcome.num_without - len(outcome.judged)


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
    faster = sum(speedup > MEANINGFUL_SPEEDUP for speedup in speedups)
    return (
        f"{counts}; {faster} certified above {MEANINGFUL_SPEEDUP}; of the correct ones mean "
        f"{fmean(speedups):.2f}x, median {median(speedups):.2f}x"
    )
