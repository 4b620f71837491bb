"""Count the seconds of a device's judges by activity; each of their processes notes its own.

A judge measures or checks from the moment it has a candidate, or another device's claim, until it
has a verdict, except while it waits. It waits for a process to begin, for a candidate to be loaded
and built, for the reference's process, for compiled files to be handed over, and for processes to
end, which hold the device.

A candidate may compile in its first call, as Triton does. This cannot be told from running, and is
no wait here; nor is waiting for the turn to time on a device. Preparing a problem and trying its
reference are neither measuring nor waiting.

`watch_parts` also counts parts of the judge, each with all that it calls, to find out where some of
the seconds are lost.

The functions are for `DeviceProcess.process`, which runs them in the device's process. That process
forks one for each problem, and all of them note what they do in one file. The functions wrap the
harness's own code, so that the harness need not know of them.
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

from cudal1.harness.checks import examination
from cudal1.harness.checks.examination import Examination
from cudal1.harness.checks.staged_check import StagedCheck
from cudal1.harness.exchange import problem_workers
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.exchange.interval import Interval
from cudal1.harness.exchange.outside import Outside
from cudal1.harness.exchange.problem_workers import ProblemWorkers
from cudal1.harness.judge import ProblemJudge
from cudal1.harness.oracle.oracle import Oracle
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.schedule.pool import Pool
from cudal1.harness.timing.confirmation import Confirmation
from cudal1.harness.timing.credible import Credible
from cudal1.harness.timing.quads import Quads
from cudal1.harness.timing.sessions import Sessions

MEASURING, PREPARING, JUDGING = "measuring or checking", "preparing", "judging"
TRYING = "trying references"
DOES: dict[str, tuple[Any, str]] = {
    TRYING: (Pool, "_tried"),
    PREPARING: (ProblemJudge, "__init__"),
    JUDGING: (ProblemJudge, "_judgement"),
}
"""Activities, none within another; the last makes verdicts and confirms those of other devices."""
WAITS: dict[str, tuple[Any, str]] = {
    "waiting for a start": (Zygote, "welcome"),
    "waiting for a build": (examination, "wait_ready"),
    "waiting for the reference": (problem_workers, "wait_ready"),
    "waiting for compiled files": (Worker, "hand_over"),
    "waiting for ends": (Zygote, "settle"),
}
"""Waits, by what is waited for, with the waiting method; none of them within another."""

PARTS: tuple[tuple[type, str], ...] = (
    (Sessions, "measure"),
    (Confirmation, "_again"),
    (StagedCheck, "run"),
    (Quads, "warm_up"),
    (Quads, "measure"),
    (Quads, "_num_calls"),
    (Credible, "limit"),
    (BurstRunner, "run"),
    (Interval, "run"),
    (Outside, "calm_ns"),
    (Examination, "compare"),
    (Examination, "change_weights"),
    (Oracle, "draw"),
    (Oracle, "exact_key"),
    (Oracle, "key"),
    (ProblemWorkers, "_begin"),
    (ProblemWorkers, "_ring"),
    (ProblemWorkers, "keep_builds"),
    (ProblemWorkers, "make_room"),
    (Zygote, "begin"),
    (Zygote, "reap"),
    (Zygote, "_top_up"),
    (Zygote, "_have_idle_workers"),
    (Worker, "load"),
    (Worker, "freeze"),
    (Worker, "thaw"),
    (Worker, "close"),
)
"""Methods to count, some within others."""

_notes: Path | None = None
"""File with a line for each activity, wait or call: its kind, its name, its seconds."""
_DOES, _CALL = "does", "call"
_doing: list[str] = []
"""Current activities, if any."""


def watch() -> None:
    """Count from this moment, in this process and in those that it forks."""
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
    """Count `PARTS` from this moment, after `watch`."""
    for owner, name in PARTS:
        part = f"{owner.__name__}.{name}"
        setattr(owner, name, _counted(partial(_note, _CALL, part), getattr(owner, name)))


def parts() -> dict[str, tuple[int, float]]:
    """Return calls of each part while it judged, and their seconds."""
    calls: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    for part, took_s in _noted(_CALL):
        number, known_s = calls[part]
        calls[part] = number + 1, known_s + took_s
    return dict(calls)


def spent_s() -> dict[str, float]:
    """Return seconds so far: trying; preparing; judging with its waits; each wait in judging."""
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
        spent_s: seconds of each device's processes, by activity.
        wall_s: wall time in which they were spent.
        num_lanes: lanes of each device, which judge side by side.
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
    """Return the function with the seconds of each call noted while it judges."""

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
