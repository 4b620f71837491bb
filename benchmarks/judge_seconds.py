"""Count what a device's judges spend their seconds on; each of their processes notes its own.

A judge measures or checks from the moment it has a candidate, or another device's claim, until it
has a verdict, but for its waits: for a process to begin, for a candidate to be loaded and built,
for the reference's process, for compiled files to be handed over, and for processes to end, which
hold the device. What a candidate compiles in its first call, as Triton does, cannot be told from
running, and is no wait here; nor is waiting for the turn to time on a device. Preparing a problem
is neither, nor is trying its reference.

`watch_parts` counts its parts besides, each with all that it calls, to find out where some of the
seconds are lost.

The functions are for `Seat.process`, which runs them in the device's process. That one forks a
process for each problem, and all of them note what they do in one file. What the functions wrap is
the harness's own code, so that nothing there has to know of them.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from typing import Any

from cudal1.harness import crew, examination
from cudal1.harness.burst import Desk
from cudal1.harness.confirmation import Confirmation
from cudal1.harness.credible import Credible
from cudal1.harness.crew import Crew
from cudal1.harness.examination import Examination
from cudal1.harness.interval import Interval
from cudal1.harness.judge import ProblemJudge
from cudal1.harness.oracle import Oracle
from cudal1.harness.outside import Outside
from cudal1.harness.pool import Pool
from cudal1.harness.quads import Quads
from cudal1.harness.sandbox import Worker
from cudal1.harness.sessions import Sessions
from cudal1.harness.staged_check import StagedCheck
from cudal1.harness.zygote import Zygote

MEASURING, PREPARING, JUDGING = "measuring or checking", "preparing", "judging"
TRYING = "trying references"
DOES: dict[str, tuple[Any, str]] = {
    TRYING: (Pool, "_tried"), PREPARING: (ProblemJudge, "__init__"),
    JUDGING: (ProblemJudge, "_judgement"),
}  # fmt: skip
"""None within another; the last makes verdicts and confirms those of other devices."""
WAITS: dict[str, tuple[Any, str]] = {
    "waiting for a start": (Zygote, "welcome"),
    "waiting for a build": (examination, "wait_ready"),
    "waiting for the reference": (crew, "wait_ready"),
    "waiting for compiled files": (Worker, "hand_over"),
    "waiting for ends": (Zygote, "settle"),
}  # fmt: skip
"""What is waited for, and who waits; none of them within another."""

PARTS: tuple[tuple[type, str], ...] = (
    (Sessions, "measure"), (Confirmation, "_again"), (StagedCheck, "run"),
    (Quads, "warm_up"), (Quads, "measure"), (Quads, "_num_calls"), (Credible, "limit"),
    (Desk, "run"), (Interval, "run"), (Outside, "calm_ns"), (Examination, "compare"),
    (Examination, "change_weights"), (Oracle, "draw"), (Oracle, "exact_key"), (Oracle, "key"),
    (Crew, "_begin"), (Crew, "_ring"), (Crew, "keep_builds"), (Crew, "make_room"),
    (Zygote, "begin"), (Zygote, "reap"), (Zygote, "_top_up"), (Zygote, "_have_spares"),
    (Worker, "load"), (Worker, "freeze"), (Worker, "thaw"), (Worker, "close"),
)  # fmt: skip
"""Some within others."""

_notes: Path | None = None
"""A line for each of what was done, waited for or called: which of them, its name, its seconds."""
_DOES, _CALL = "does", "call"
_doing: list[str] = []
"""What is being done now, if anything."""


def watch() -> None:
    """Count from now on, in this process and in those that it forks."""
    global _notes
    descriptor, path = tempfile.mkstemp(prefix="cudal1-seconds-")
    os.close(descriptor)
    _notes = Path(path)
    atexit.register(_notes.unlink, missing_ok=True)
    for what, (owner, name) in DOES.items():
        setattr(owner, name, _done(what, getattr(owner, name)))
    for what, (owner, name) in WAITS.items():
        setattr(owner, name, _counted(partial(_note, _DOES, what), getattr(owner, name)))


def watch_parts() -> None:
    """Count `PARTS` from now on, after `watch`."""
    for owner, name in PARTS:
        part = f"{owner.__name__}.{name}"
        setattr(owner, name, _counted(partial(_note, _CALL, part), getattr(owner, name)))


def parts() -> dict[str, tuple[int, float]]:
    """Calls of each part while it judged, and their seconds."""
    calls: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for part, took_s in _noted(_CALL):
        number, known_s = calls[part]
        calls[part] = number + 1, known_s + took_s
    return dict(calls)


def spent_s() -> dict[str, float]:
    """Seconds so far: trying; preparing; judging, waits included; each wait while it judged."""
    spent = dict.fromkeys((*DOES, *WAITS), 0.0)
    for what, took_s in _noted(_DOES):
        spent[what] += took_s
    return spent


def forget() -> None:
    """Count from 0 again."""
    assert _notes is not None
    _notes.write_text("")


def shares(
    spent_s: Sequence[Mapping[str, float]], wall_s: float, num_lanes: int = 1
) -> dict[str, float]:
    """Return the shares of the devices' seconds: measuring or checking, each other job, no job.

    Together they are 1.

    Args:
        spent_s: by each device's processes.
        wall_s: in which they did.
        num_lanes: of each device, which judge side by side.
    """
    named = dict.fromkeys((PREPARING, *WAITS, *chain.from_iterable(spent_s)))
    parts_s = {what: sum(one.get(what, 0.0) for one in spent_s) for what in named}
    judging_s = parts_s.pop(JUDGING, 0.0)
    measuring_s = judging_s - sum(parts_s[what] for what in WAITS)
    all_s = wall_s * len(spent_s) * num_lanes
    idle_s = all_s - measuring_s - sum(parts_s.values())
    parts_s = {MEASURING: measuring_s, **parts_s, "nothing to judge": idle_s}
    return {what: part_s / all_s for what, part_s in parts_s.items()}


def _done(what: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.monotonic()
        _doing.append(what)
        try:
            return function(*args, **kwargs)
        finally:
            _doing.pop()
            _note(_DOES, what, time.monotonic() - started)

    return timed


def _counted(note: Callable[[float], None], function: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with the seconds of each call noted while it judges."""

    @wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        started = time.monotonic()
        try:
            return function(*args, **kwargs)
        finally:
            if JUDGING in _doing:
                note(time.monotonic() - started)

    return timed


def _note(kind: str, name: str, took_s: float) -> None:
    assert _notes is not None
    with _notes.open("a") as file:  # each write appends one whole line, also beside other writers
        file.write(f"{kind}\t{name}\t{took_s}\n")


def _noted(kind: str) -> Iterator[tuple[str, float]]:
    assert _notes is not None
    for line in _notes.read_text().splitlines():
        noted, name, took_s = line.split("\t")
        if noted == kind:
            yield name, float(took_s)
