"""Take turns on one device: many judges use it at once, and one alone times on it.

Judges of one device are processes that one process has forked (`pools`). A judge that uses the
device holds a lock that others may share. A judge that times holds the lock alone. A judge that
waits to time shows that it waits, and the judges that use the device pass it on at the next of
their many opportunities. To pass it on, a judge has its workers stand still, waits until its own
work on the device is over, and gives the lock up. All wait for the last to do so. Therefore a judge
that wants to time waits a while for others that want to, while the rest goes on, and they time one
after the other. Locks end with their process. Threat: none new; workers have none of these files.
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

GATE, DEVICE = 0, 1
"""Byte offsets of the two locks in the file. A judge that wants to time holds the first one alone,
so that no other judge takes the second one meanwhile."""
WANTING, READY = 1 << 32, 1 << 33
"""Offsets of locks of one byte, at the process's number. A judge holds the first while it waits to
time, and the second once it waits no more for others that want to."""
COMPANY = 3
"""Number of judges, at least, that time one after the other, where so many want to in time."""
COMPANY_S, LOOK_S = 1.0, 0.002
"""Seconds that a judge waits for such others; seconds between two looks."""
_FLOCK = struct.Struct("hh4xqqi4x")
"""`struct flock` of Linux on 64 bits: type, whence, start, length, process."""
_READ, _WRITE, _NONE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK


class TurnsFile:
    """The file of a device's turns, in the process that forks its judges."""

    def __init__(self, num_judges: int) -> None:
        self._num_judges = num_judges
        self._descriptor, path = tempfile.mkstemp(prefix="cudal1-turns-")
        Path(path).unlink()

    def fileno(self) -> int:
        """Return the descriptor; a judge's process must keep it until it has opened its own."""
        return self._descriptor

    def opened(self) -> Turns:
        """Return the turns of the judge in the calling process.

        Locks belong to an open file description, so each judge opens the file anew.
        """
        path = f"/proc/self/fd/{self._descriptor}"
        return Turns(os.open(path, os.O_RDWR | os.O_CLOEXEC), num_judges=self._num_judges)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Turns:
    """One judge's turns on its device.

    Args:
        descriptor: of a file that all judges of the device have opened; None: there are no others.
        num_judges: of the device.
    """

    def __init__(self, descriptor: int | None = None, *, num_judges: int = 1) -> None:
        self._descriptor = descriptor
        self._company = min(COMPANY, num_judges)
        self.halt: Callable[[], Callable[[], None]] = _nothing_to_halt
        """Function that stops all that the judge has on the device, and returns a function that
        resumes it."""
        self._go_on: Callable[[], None] = _nothing
        """Function that resumes what stands still."""
        self.waited_s = self.timed_s = 0.0
        """Seconds in which other judges had the device, and seconds in which this judge had it
        alone."""
        self._is_using = False
        self._is_timing = False

    @property
    def is_alone(self) -> bool:
        """True if no other judge may use the device at this moment."""
        return self._descriptor is None or self._is_timing

    def close(self) -> None:
        """Give up all locks."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    @contextmanager
    def using(self) -> Iterator[None]:
        """Use the device beside other judges; no judge times on it meanwhile."""
        if self._descriptor is None or self._is_using:
            yield
            return
        go_on = self._begin()
        try:
            go_on()
            yield
        finally:
            self._end()

    def pass_on(self) -> float:
        """Give the device up if another judge waits to time; return the seconds that this took.

        A judge that uses the device calls this as often as it can.
        """
        if not self._is_using or not self._is_wanted():
            return 0.0
        began = time.monotonic()
        self._end()
        self._begin()()
        return time.monotonic() - began

    @contextmanager
    def elsewhere(self) -> Iterator[None]:
        """Give the device up for a block that does not need it; other judges may time meanwhile."""
        if not self._is_using:
            yield
            return
        self._end()
        try:
            yield
        finally:
            self._begin()()

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Have the device alone, once all judges that use it have passed it on.

        The caller must be using the device.
        """
        if self.is_alone:
            yield
            return
        assert self._is_using, "a judge that times uses the device"
        self._end()
        go_on, self._go_on = self._go_on, _nothing
        try:
            self._await_company()
            self._lock(GATE, _WRITE)
            self._lock(DEVICE, _WRITE)
        finally:  # held by a process that goes on, they would keep all others waiting
            self._lock(WANTING + os.getpid(), _NONE)
            self._lock(READY + os.getpid(), _NONE)
        self._is_timing, began = True, time.monotonic()
        try:
            yield
        finally:
            self.timed_s += time.monotonic() - began
            self._is_timing = False
            if self._count_others(READY):
                self._lock(DEVICE, _NONE)
                self._lock(GATE, _NONE)
                self._begin()
            else:
                # a lock that is held alone becomes shared in one step
                self._lock(DEVICE, _READ)
                self._lock(GATE, _NONE)
            self._is_using = True
            go_on()

    def _await_company(self) -> None:
        """Wait until enough judges want to time, or nothing is gained by waiting for others."""
        began = time.monotonic()
        self._lock(WANTING + os.getpid(), _WRITE)
        while (
            time.monotonic() < began + COMPANY_S
            and self._count_others(WANTING) + 1 < self._company
            and not self._count_others(READY)
            and not self._is_wanted()
            and self._told(DEVICE, 1, _WRITE)[0] != _NONE
        ):
            time.sleep(LOOK_S)
        self.waited_s += time.monotonic() - began
        self._lock(READY + os.getpid(), _WRITE)

    def _begin(self) -> Callable[[], None]:
        self._lock(GATE, _READ)
        while self._count_others(READY):  # they time first, one after the other
            self._lock(GATE, _NONE)
            began = time.monotonic()
            time.sleep(LOOK_S)
            self.waited_s += time.monotonic() - began
            self._lock(GATE, _READ)
        self._lock(DEVICE, _READ)
        self._lock(GATE, _NONE)
        self._is_using = True
        go_on, self._go_on = self._go_on, _nothing
        return go_on

    def _end(self) -> None:
        self._go_on = self.halt()
        self._is_using = False
        self._lock(DEVICE, _NONE)

    def _is_wanted(self) -> bool:
        return self._told(GATE, 1, _READ)[0] != _NONE

    def _count_others(self, first: int, length: int = WANTING) -> int:
        """Return the number of bytes in a range that other judges have locked."""
        if length <= 0:
            return 0
        kind, place = self._told(first, length, _WRITE)
        if kind == _NONE:
            return 0
        before, behind = place - first, first + length - place - 1
        return 1 + self._count_others(first, before) + self._count_others(place + 1, behind)

    def _told(self, first: int, length: int, kind: int) -> tuple[int, int]:
        """Return kind and place of a lock that keeps this judge from locking bytes in this way."""
        assert self._descriptor is not None
        asked = _FLOCK.pack(kind, os.SEEK_SET, first, length, 0)
        told = _FLOCK.unpack(fcntl.fcntl(self._descriptor, fcntl.F_OFD_GETLK, asked))
        return told[0], told[2]

    def _lock(self, byte: int, kind: int) -> None:
        """Wait for a lock of one byte, or give it up."""
        assert self._descriptor is not None
        asked, began = _FLOCK.pack(kind, os.SEEK_SET, byte, 1, 0), time.monotonic()
        fcntl.fcntl(self._descriptor, fcntl.F_OFD_SETLKW, asked)
        self.waited_s += time.monotonic() - began


def _nothing() -> None:
    """Do nothing: no work stood still."""


def _nothing_to_halt() -> Callable[[], None]:
    return _nothing
