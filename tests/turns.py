"""Let tests that measure time be alone on the machine; the others continue afterwards."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    """A room for many or for one: locks of two files, which each test process opens for itself.

    A process that wants to be alone keeps the door meanwhile. So others that come and go cannot
    keep it waiting for ever.
    """

    def __init__(self, door: Path, room: Path) -> None:
        self._door = os.open(door, os.O_RDONLY | os.O_CLOEXEC)
        self._room = os.open(room, os.O_RDONLY | os.O_CLOEXEC)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Be in the room, perhaps with others."""
        self._enter(fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Leave the room, be in it when all others have left, then share it again."""
        # first out of it, since another may wait for us behind the door
        fcntl.flock(self._room, fcntl.LOCK_UN)
        self._enter(fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_SH)

    def _enter(self, how: int) -> None:
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, how)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
