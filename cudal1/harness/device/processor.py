"""Measure the time that a thread waited for a core, as the kernel counts it.

On a busy machine a burst takes several times as long as its calls compute: other programs have the
worker's core for some milliseconds. That time is no part of any call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NUM_BYTES = 100
"""Bytes that are read of `schedstat`: three numbers of at most twenty digits each."""
WAITED = 1
"""Index of the nanoseconds waited among these numbers (Documentation/scheduler/sched-stats.rst)."""


@dataclass
class Waited:
    """The nanoseconds waited, known once `waiting` is over; 0 where the kernel does not count."""

    ns: int = 0


@contextmanager
def waiting(process: int | None) -> Iterator[Waited]:
    """Add up the time that the first thread of a process, if there is one, waits meanwhile."""
    found = Waited()
    file = None if process is None else _opened(process)
    if file is None:
        yield found
        return
    began_ns = _told(file)
    try:
        yield found
    finally:
        found.ns = max(0, _told(file) - began_ns)
        os.close(file)


def _opened(process: int) -> int | None:
    try:
        return os.open(f"/proc/{process}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _told(file: int) -> int:
    try:
        return int(os.pread(file, NUM_BYTES, 0).split()[WAITED])
    except (OSError, IndexError):  # the thread has ended
        return 0
