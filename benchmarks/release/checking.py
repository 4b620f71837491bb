"""Check released sources plainly: do they agree with references by KernelBench's contract?

The check is independent of cudal1's harness: `check_worker` runs in a fresh process for each row
and mode. Rows are checked side by side, since nothing is timed. A row that runs out of memory there
is checked again alone.

KernelBench runs modules as they are constructed, in training mode unless they say otherwise; the
authors' own script (`eval/eval_cuda.py`) compares them after `.eval()`. So what does not agree as
constructed is checked in that mode, too.

Threat: released code runs unguarded here, as under KernelBench, and could write its own result. The
check decides nothing: its results stand beside verdicts in a table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from benchmarks.ablation.memory import Lines
from benchmarks.common import note
from benchmarks.release.children import Children, side_by_side
from benchmarks.release.jobs import run_job
from benchmarks.release.rows import Entry, Place, Which
from benchmarks.release.state import State, lines_of
from cudal1.harness.device.shortage import lacks_memory
from cudal1.problem import DeviceClass
from cudal1.protocol import Mode

WORKER = Path(__file__).with_name("check_worker.py")
AGREES, DISAGREES = 2e-3, 1e-2
"""Relative L2 errors: below the first outputs agree, above the second they do in no class."""
COMPILERS = 4
"""Compilers that one extension may start at a time."""


class Outcome(StrEnum):
    """The plain check's result on a source."""

    AGREES = "agrees"
    """Every output, for every input and seed, is within `AGREES` of the reference's."""
    NEAR = "near"
    """Some output is farther off, none beyond `DISAGREES`."""
    DISAGREES = "disagrees"
    """Some output is beyond `DISAGREES`, of another shape or type, or not finite."""
    FAILS = "fails"
    """It does not build, raises an error, dies, or does not end."""
    NO_REFERENCE = "no reference"
    """The reference itself fails."""


@dataclass(frozen=True)
class Checked:
    """One source in one mode."""

    outcome: Outcome
    relative_l2: float | None
    """Largest error of all outputs; None where there is none, or it is not finite."""
    allclose: dict[str, bool]
    """Results by KernelBench's tolerances: True if `torch.allclose` holds of every output."""
    reason: str | None
    """Reason of a failure, or the way in which an output is of another kind."""
    leaves_inputs: bool | None
    """True if no input was changed, as far as it ran."""
    fresh_outputs: bool | None
    """True if later calls left an earlier output alone; None if it did not get there."""


@dataclass(frozen=True)
class Checking:
    """The settings of a check of rows."""

    state: State
    which: Which
    device_class: DeviceClass
    beside: int
    """Rows at a time."""
    limit_s: float
    """Seconds that one row may take in one mode, compiling included."""
    threads: int
    """Threads of PyTorch, in each process."""
    worker: Path = WORKER
    """Script that gets each row."""

    def known(self) -> dict[Place, dict[str, Any]]:
        """Return the lines on rows that have been checked."""
        return {
            (line["level"], line["number"]): line
            for line in lines_of(self.state.checks)
            if line["which"] == self.which
        }


def check(checking: Checking, entries: Sequence[Entry], *, deadline: float) -> None:
    """Check the entries that have not been checked; those without a source are left out."""
    known = checking.known()
    left = [entry for entry in entries if entry.source and entry.place not in known]
    if not left:
        return
    note(f"checking {checking.which}: {len(left)} rows, {checking.beside} at a time")
    kept, lock, short = Lines(checking.state.checks), threading.Lock(), list[Entry]()

    def keep(entry: Entry, line: dict[str, Any]) -> None:
        with lock:
            kept.add(line)
            note(f"{entry.name}: {read_line(line)[Mode.CONSTRUCTED].outcome}")

    def one(entry: Entry, children: Children) -> None:
        line = _line(checking, entry, children)
        if checking.beside > 1 and _is_short(line):
            short.append(entry)
        else:
            keep(entry, line)

    def alone(entry: Entry, children: Children) -> None:
        keep(entry, _line(checking, entry, children))

    side_by_side(left, one, beside=checking.beside, deadline=deadline)
    side_by_side(short, alone, beside=1, deadline=deadline)


def read_line(line: dict[str, Any]) -> dict[Mode, Checked]:
    """Return a line's results for each mode that was tried."""
    return {Mode(mode): _checked(result) for mode, result in line["modes"].items()}


def _line(checking: Checking, entry: Entry, children: Children) -> dict[str, Any]:
    began = time.monotonic()
    modes = {Mode.CONSTRUCTED: _result(checking, entry, Mode.CONSTRUCTED, children)}
    if _checked(modes[Mode.CONSTRUCTED]).outcome not in (Outcome.AGREES, Outcome.NO_REFERENCE):
        modes[Mode.EVAL] = _result(checking, entry, Mode.EVAL, children)
    return {
        "which": checking.which,
        "level": entry.place[0],
        "number": entry.place[1],
        "candidate_id": entry.candidate_id,
        "wall_s": time.monotonic() - began,
        "modes": modes,
    }


def _result(checking: Checking, entry: Entry, mode: Mode, children: Children) -> dict[str, Any]:
    """Return the worker's result on one row in one mode, completed by how the worker ended."""
    folder = checking.state.work / f"check-{checking.which}-{entry.name.replace(':', '-')}-{mode}"
    content = {"device": checking.device_class.value, "mode": mode, "threads": checking.threads}
    found, ended = run_job(
        children,
        checking.worker,
        folder,
        entry,
        content,
        limit_s=checking.limit_s,
        environment={"MAX_JOBS": str(COMPILERS)},
    )
    found = found or {"stage": "reference", "error": ended.why, "trials": []}
    if found["error"] is None and found["stage"] != "done" and ended.code != 0:
        found["error"] = ended.why
    return found


def _is_short(line: dict[str, Any]) -> bool:
    return any(lacks_memory(result["error"] or "") for result in line["modes"].values())


def _checked(result: dict[str, Any]) -> Checked:
    trials, error = result["trials"], result["error"]
    problem = next((trial["problem"] for trial in trials if trial["problem"]), None)
    errors = [trial["relative_l2"] for trial in trials]
    worst = None if None in errors else max(errors, default=None)
    if error is not None and result["stage"] == "reference":
        outcome = Outcome.NO_REFERENCE
    elif error is not None:
        outcome = Outcome.FAILS
    elif worst is None or worst > DISAGREES:
        outcome = Outcome.DISAGREES
    else:
        outcome = Outcome.AGREES if worst < AGREES else Outcome.NEAR
    names = trials[0]["allclose"] if trials else ()
    return Checked(
        outcome,
        worst,
        {
            each: error is None and all(trial["allclose"][each] for trial in trials)
            for each in names
        },
        problem if error is None else f"{result['stage']}: {error}",
        result.get("leaves_inputs"),
        result.get("fresh_outputs"),
    )
