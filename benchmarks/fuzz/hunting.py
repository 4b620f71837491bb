"""Judge odd rows, and shrink what breaks a rule until it is worth looking at."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.common import note
from benchmarks.fuzz import rules, running
from benchmarks.fuzz.grammar import NEIGHBOURS, Row, simpler
from benchmarks.fuzz.rules import Fault
from benchmarks.fuzz.running import Ran

MAX_SHRINKS = 12
"""Most runs to shrink one fault."""


@dataclass
class Found:
    """A kind of fault, with the smallest rows that show it."""

    fault: Fault
    rows: Sequence[Row]
    folder: Path
    times: int = 1

    @property
    def shown(self) -> str:
        """Return the oddities of the fault's row, or of all its rows."""
        if self.fault.row is not None:
            return self.rows[self.fault.row - 1].name
        return "; ".join(row.name for row in self.rows if row not in NEIGHBOURS)[:1000]


class Hunt:
    """A hunt for faults: what was judged, and what was found.

    Args:
        keep: the folder of the faults' files.
        deadline: after it nothing more is begun, by `time.monotonic`.
        shrinks: whether faults are made smaller.
    """

    def __init__(self, keep: Path, *, deadline: float, shrinks: bool = True) -> None:
        self._keep = keep
        self._deadline = deadline
        self._shrinks = shrinks
        self.found: dict[tuple[str, str], Found] = {}
        """Faults by rule and by the oddities that they are about."""
        self.num_suites = self.num_rows = self.num_singles = 0
        self.outcomes = Counter[str]()
        self.longest_s = 0.0

    def is_over(self) -> bool:
        """Return whether the time is up."""
        return time.monotonic() >= self._deadline

    def suite(self, rows: Sequence[Row]) -> None:
        """Judge rows among plain neighbours as a suite."""
        rows = [*NEIGHBOURS[:1], *rows, *NEIGHBOURS[1:]]
        self.num_suites += 1
        self.num_rows += len(rows)
        self.look(rows, _suite)

    def single(self, row: Row) -> None:
        """Judge one row as two files."""
        self.num_singles += 1
        self.look([row], _single)

    def look(self, rows: Sequence[Row], run: Run) -> None:
        """Judge rows with `run`, and remember the faults."""
        with _Folder() as folder:
            faults, ran = run(rows, folder)
            self.longest_s = max(self.longest_s, ran.took_s)
            self._count(rows, ran)
            for fault in faults:
                self._keep_fault(fault, rows, run, folder, ran)

    def _count(self, rows: Sequence[Row], ran: Ran) -> None:
        for number in range(1, len(rows) + 1):
            verdicts = ran.verdicts.get(number, [])
            self.outcomes[verdicts[0]["status"] if verdicts else "no verdict"] += 1

    def _keep_fault(
        self, fault: Fault, rows: Sequence[Row], run: Run, folder: Path, ran: Ran
    ) -> None:
        """Remember a fault; one of a known kind is only counted."""
        kind = fault.rule, _kind_of(fault, rows)
        if kind in self.found:
            self.found[kind].times += 1
            return
        name = f"{len(self.found) + 1:02d} {fault.rule}".replace(" ", "-")
        found = self.found[kind] = Found(fault, rows, self._keep / name)
        note(f"fault: {fault.rule}: {found.shown[:300]}: {fault.said[:300]}")
        _copy(folder, found.folder, ran)
        if self._shrinks:
            self._shrink(found, run)
            note(f"  smaller: {found.shown[:300]}: {found.fault.said[:300]}")

    def _shrink(self, found: Found, run: Run) -> None:
        """Try fewer rows and fewer pieces while the same rule is broken."""
        tries = 0
        is_smaller = True
        while is_smaller:
            is_smaller = False
            for rows in _smaller(found):
                if tries >= MAX_SHRINKS or self.is_over():
                    return
                tries += 1
                with _Folder() as folder:
                    faults, ran = run(rows, folder)
                    same = [each for each in faults if each.rule == found.fault.rule]
                    if same:
                        found.fault, found.rows, is_smaller = same[0], rows, True
                        _copy(folder, found.folder, ran)
                        break


Run = Callable[[Sequence[Row], Path], tuple[list[Fault], Ran]]


def _suite(rows: Sequence[Row], folder: Path) -> tuple[list[Fault], Ran]:
    ran = running.run_suite(rows, folder)
    return rules.of_suite(rows, ran), ran


def _single(rows: Sequence[Row], folder: Path) -> tuple[list[Fault], Ran]:
    ran = running.run_single(rows[0], folder)
    return rules.of_single(rows[0], ran), ran


def _kind_of(fault: Fault, rows: Sequence[Row]) -> str:
    """Return the common part of faults of one cause: the line without its numbers and names."""
    about = rows[fault.row - 1].name if fault.row is not None else ""
    words = "".join(" " if c.isdigit() else c for c in fault.said).split()
    return about if fault.rule in ("not refused", "a row is lost") else " ".join(words)[:60]


def _smaller(found: Found) -> list[Sequence[Row]]:
    """Return rows to try instead: the row alone, halves, or one with a piece less."""
    rows, number = found.rows, found.fault.row
    odd = [row for row in rows if row not in NEIGHBOURS]
    if len(rows) > 1 and number is not None:
        return [[rows[number - 1]]]
    if len(odd) > 1:
        middle = len(odd) // 2
        return [odd[:middle], odd[middle:]]
    return [[row] for row in simpler(odd[0])] if odd else []


class _Folder:
    """A folder for one run."""

    def __enter__(self) -> Path:
        self._path = Path(tempfile.mkdtemp(prefix="fuzz-"))
        return self._path

    def __exit__(self, *_: object) -> None:
        running.make_room(self._path)


def _copy(folder: Path, to: Path, ran: Ran) -> None:
    """Keep a run's files and the command that shows the fault."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(
        folder,
        to,
        symlinks=True,
        ignore_dangling_symlinks=True,
        ignore=shutil.ignore_patterns("home", "scratch"),
    )
    (to / "command").write_text(f"cd work; cudal1 {' '.join(ran.command)}\n")
