"""What the seconds of a device's judge went into, told by its own process.

A judge measures or checks from the moment it has a candidate, or another device's claim, until it
has a verdict, but for its waits: for a process to begin, for a candidate to be loaded and built,
for the reference's process, for compiled files to be handed over, and for processes to end, which
hold the device. What a candidate compiles in its first call, as Triton does, cannot be told from
running, and is no wait here. Preparing a problem is neither.

`watch_parts` counts its parts besides, each with all that it calls, to find out where some of the
seconds are lost.

The functions are for `Seat.process`, which runs them in the judge's process; what they wrap is the
harness's own code, so that nothing there has to know of them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from importlib import import_module
from itertools import chain
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
from cudal1.harness.quads import Quads
from cudal1.harness.sandbox import Worker
from cudal1.harness.sessions import Sessions
from cudal1.harness.staged_check import StagedCheck
from cudal1.harness.zygote import Zygote

MEASURING, PREPARING, JUDGING = "measuring or checking", "preparing", "judging"
DOES: dict[str, tuple[Any, str]] = {
    PREPARING: (ProblemJudge, "__init__"), JUDGING: (ProblemJudge, "_judgement"),
}  # fmt: skip
"""Neither within the other; the second makes verdicts and confirms those of other devices."""
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

_spent_s: defaultdict[str, float] = defaultdict(float)
_calls: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
"""How often each part was called while it judged, and the seconds of these calls."""
_doing: list[str] = []
"""What is being done now, if anything."""


def watch(also: Mapping[str, tuple[str, str]] | None = None) -> None:
    """Count from now on, in this process.

    Args:
        also: further things that it does, each a function of a module, by their names.
    """
    others = {what: (import_module(module), name) for what, (module, name) in (also or {}).items()}
    for what, (owner, name) in (DOES | others).items():
        _spent_s[what] = 0.0
        setattr(owner, name, _done(what, getattr(owner, name)))
    for what, (owner, name) in WAITS.items():
        setattr(owner, name, _counted(partial(_note_wait, what), getattr(owner, name)))


def watch_parts() -> None:
    """Count `PARTS` from now on, in this process, after `watch`."""
    for owner, name in PARTS:
        part = f"{owner.__name__}.{name}"
        setattr(owner, name, _counted(partial(_note_call, part), getattr(owner, name)))


def parts() -> dict[str, tuple[int, float]]:
    """Calls of each part and their seconds."""
    return dict(_calls)


def spent_s() -> dict[str, float]:
    """Seconds so far: preparing; judging, waits included; and each of the waits while it judged."""
    return dict(_spent_s)


def forget() -> None:
    """Count from 0 again."""
    _spent_s.update(dict.fromkeys(_spent_s, 0.0))
    _calls.clear()


def shares(spent_s: Sequence[Mapping[str, float]], wall_s: float) -> dict[str, float]:
    """Of the seconds of so many judges: measuring or checking, what else each did, and nothing.

    Together they are 1.
    """
    named = dict.fromkeys((PREPARING, *WAITS, *chain.from_iterable(spent_s)))
    parts_s = {what: sum(one.get(what, 0.0) for one in spent_s) for what in named}
    judging_s = parts_s.pop(JUDGING, 0.0)
    measuring_s = judging_s - sum(parts_s[what] for what in WAITS)
    all_s = wall_s * len(spent_s)
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
            _spent_s[what] += time.monotonic() - started

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


def _note_wait(what: str, took_s: float) -> None:
    _spent_s[what] += took_s


def _note_call(part: str, took_s: float) -> None:
    number, known_s = _calls[part]
    _calls[part] = number + 1, known_s + took_s
