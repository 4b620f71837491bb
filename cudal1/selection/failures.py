"""Failures that a prompt shows behind its exemplars, each with the reason: "this was wrong, for …".

Failures are ours; the paper shows successes alone. Cheats are left out: what a prompt shows is
learned.
"""

from __future__ import annotations

from collections.abc import Sequence

from cudal1.record import Record
from cudal1.selection.exemplar import Attempt
from cudal1.verdict import Status

LESSONS = (Status.NO_BUILD, Status.CRASHED, Status.TIMED_OUT, Status.INCORRECT)
"""Statuses of failures that prompts may show."""


class Failure(Record):
    """A failed candidate, as the choice of failures sees it."""

    attempt: Attempt
    program_id: str
    """The same for copies (`cudal1.program.identity`)."""
    island: int | None
    """Island that its answer lives on; None: no island."""


def newest(failures: Sequence[Failure], *, count: int, island: int | None) -> list[Attempt]:
    """Return up to `count` attempts of distinct programs, the newest last.

    Args:
        failures: failures of one problem in the order of their answers.
        count: the most that are returned.
        island: failures of other islands do not count; None: all count.
    """
    found: dict[str, Attempt] = {}
    for failure in reversed(failures):
        if island is None or failure.island == island:
            found.setdefault(failure.program_id, failure.attempt)
    return list(found.values())[:count][::-1]
