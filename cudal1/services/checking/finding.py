"""The outcome of checking one proof of a kept version."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from cudal1.record import Record
from cudal1.verdict import Verdict


class State(StrEnum):
    """The outcome of checking one proof."""

    FINE = "fine"
    """Correct, and not shown to be slower than proven."""
    SLOWER = "slower"
    """Correct, and certified to be slower than proven by more than the margin."""
    WRONG = "wrong"
    """Not correct: the first gate that failed is the reason."""
    CHANGED = "changed"
    """The reference or the version is not what was proven, so nothing is proven of it."""
    ELSEWHERE = "elsewhere"
    """Proven on another kind of device or processor: not judged here."""
    UNJUDGED = "unjudged"
    """It could not be judged here, for a reason that says nothing of the version."""


WORSE = frozenset({State.SLOWER, State.WRONG, State.CHANGED})
"""States that a person has to look at."""


class Finding(Record):
    """The result of checking one proof."""

    record: str
    """Path of the record."""
    problem: str
    """Path of the problem's file, as the record names it."""
    version: str
    """Path of the version's file, as the record names it."""
    device_kind: str
    """Kind of device of the proof."""
    state: State
    reason: str
    """The finding in one line."""
    proven: float
    """Speedup that was proven: the median of the record's sessions, or the verdict's estimate."""
    speedup: float | None = None
    """Speedup of today: the median of all sessions; None where nothing was timed."""
    sessions: tuple[float, ...] = ()
    """Speedups of today's measurements in fresh processes, in their order."""
    p_value: float | None = None
    """Probability of a series as slow as the last one, were the version as fast as proven; None
    where no series was needed."""
    detects: float | None = None
    """Least slowdown that this record lets a check find in 19 of 20 cases, as a share of time; None
    where the record has too few sessions."""
    changed_versions: tuple[str, ...] = ()
    """Software that was changed since, such as `torch 2.12.0 → 2.13.0`."""
    verdict: Verdict | None = None
    """Today's first verdict, where there is one."""
    took_s: float = 0.0
    """Seconds that the check of this proof took."""


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if something is worse, 2 if something could not be judged or nothing was, else 0."""
    states = {finding.state for finding in findings}
    if states & WORSE:
        return 1
    return 2 if State.UNJUDGED in states or State.FINE not in states else 0
