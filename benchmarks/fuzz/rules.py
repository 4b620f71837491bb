"""Check the rules of every run, whatever was judged: docs/command-line.md, as code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.fuzz.grammar import Author, Row
from benchmarks.fuzz.pieces import Expected
from benchmarks.fuzz.places import PLACES
from benchmarks.fuzz.running import LEVEL, Ran

CORRECT, INCORRECT = "correct", "incorrect"
PROGRESS = re.compile(r"[a-z ]+: (\d+ of \d+(, .+ (left|so far))?|\d+ s so far)")
SUMMARY = re.compile(r"(note: |left out: |.*others took its candidates over$)")
COMPLAINT = re.compile(rf"kernelbench/L{LEVEL}/(\d+)_p: cannot be judged: (.+)")
MAX_LINE = 1000
"""Most characters of a line that a person still reads."""


@dataclass(frozen=True)
class Fault:
    """A rule that a run broke."""

    rule: str
    said: str
    row: int | None = None
    """The number of its row; None for the whole run."""


def of_suite(rows: Sequence[Row], ran: Ran) -> list[Fault]:
    """Return the faults of the run of a suite; rows are numbered from 1."""
    faults = list(_of_any(ran))
    if ran.exit_code is None:
        return faults
    numbers = range(1, len(rows) + 1)
    refused, others = _complaints(ran)
    faults += [Fault("a line that names no row", line) for line in others]
    without = [number for number in numbers if number not in ran.verdicts]
    for number in numbers:
        if number in without and number not in refused:
            faults.append(Fault("a row is lost", "no verdict and no line", number))
        if len(refused.get(number, [])) > 1:
            faults.append(Fault("several lines", " | ".join(refused[number]), number))
        if len(ran.verdicts.get(number, [])) > 1:
            faults.append(Fault("several verdicts", f"{len(ran.verdicts[number])}", number))
    if ran.exit_code != (1 if without else 0):
        faults.append(Fault("exit code", f"{ran.exit_code} with {len(without)} rows without"))
    said = _document(ran.stdout)
    if said is not None and said.get("num_without") != len(without):
        faults.append(Fault("counts", f"num_without {said.get('num_without')}, not {len(without)}"))
    for number, row in enumerate(rows, start=1):
        verdict = next(iter(ran.verdicts.get(number, [])), None)
        faults += _of_row(row, verdict, "; ".join(refused.get(number, [])), number)
    return faults


def of_single(row: Row, ran: Ran) -> list[Fault]:
    """Return the faults of the run of two files."""
    faults = list(_of_any(ran))
    if ran.exit_code is None:
        return faults
    verdict = _document(ran.stdout)
    lines = [line for line in _said(ran) if not line.startswith("note: ")]
    if ran.exit_code == 2:
        if not lines:
            faults.append(Fault("exit code 2 without a line", ran.stderr[:300], 1))
        if verdict is not None:
            faults.append(Fault("exit code 2 with a verdict", verdict.get("status", "")))
    else:
        if lines:
            faults.append(Fault("a line beside a verdict", lines[0], 1))
        status = (verdict or {}).get("status")
        if (ran.exit_code == 0) != (status == CORRECT):
            faults.append(Fault("exit code", f"{ran.exit_code} of {status}", 1))
    return [*faults, *_of_row(row, verdict, "; ".join(lines), 1)]


def _of_any(ran: Ran) -> Iterator[Fault]:
    if ran.exit_code is None:
        yield Fault("does not end", f"after {ran.took_s:.0f} s")
    elif ran.exit_code not in (0, 1, 2):
        yield Fault("exit code", f"{ran.exit_code}")
    lines = ran.stderr.splitlines()
    if any(line.startswith("Traceback (most recent") for line in lines):
        yield Fault("a traceback", lines[-1][:300])
    for line in lines:
        if len(line) > MAX_LINE or not line.isprintable():
            yield Fault("a line that nobody can read", repr(line[:300]))
    if ran.exit_code in (0, 1) and _document(ran.stdout) is None:
        yield Fault("standard output", f"not one JSON document: {ran.stdout[:300]!r}")
    if ran.exit_code == 2 and ran.stdout:
        yield Fault("standard output", f"not empty: {ran.stdout[:300]!r}")
    for each in ran.left:
        yield Fault("something is left behind", each)


def _of_row(row: Row, verdict: dict[str, Any] | None, reason: str, number: int) -> Iterator[Fault]:
    """Yield faults where a row's verdict or reason is not what its pieces make certain."""
    expected = row.problem.expected
    if verdict is None:
        if expected is Expected.JUDGED:
            yield Fault("refused", reason, number)
        return
    status, said = verdict["status"], f"{verdict['status']}: {verdict.get('reason')}"
    if expected is Expected.REFUSED:
        yield Fault("not refused", said, number)
    elif row.author is Author.COPY and row.problem.is_function:
        if status == INCORRECT or (expected is Expected.JUDGED and status != CORRECT):
            yield Fault("an honest copy is not correct", said, number)
    elif row.author is Author.WRONG and expected is Expected.JUDGED and status == CORRECT:
        yield Fault("a wrong candidate is correct", said, number)
    elif row.author is Author.ODD:
        ends = any(_ends(piece) for piece in row.candidate.pieces)
        if ends and not any(piece.tampers for piece in row.candidate.pieces) and status == CORRECT:
            yield Fault("a candidate that must fail is correct", said, number)
        acts = all(piece.place in ACTING for piece in row.candidate.pieces)
        if acts and row.candidate.expected is Expected.JUDGED and status != CORRECT:
            yield Fault("a right candidate is not correct", said, number)


ACTING = {place.name for place in PLACES}


def _ends(piece: Any) -> bool:
    return piece.place in ACTING and piece.expected is Expected.REFUSED


def _complaints(ran: Ran) -> tuple[dict[int, list[str]], list[str]]:
    """Return reasons by row, and lines about no row."""
    refused: dict[int, list[str]] = {}
    others: list[str] = []
    for line in _said(ran):
        if match := COMPLAINT.fullmatch(line):
            refused.setdefault(int(match[1]), []).append(match[2])
        elif not SUMMARY.match(line):
            others.append(line[:300])
    return refused, others


def _said(ran: Ran) -> list[str]:
    return [line for line in ran.stderr.splitlines() if not PROGRESS.fullmatch(line)]


def _document(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
