"""A worker's own memory, read by its judge: an output is taken from where it was computed.

Threat: where an output lies is the worker's word, and what lies there is its to change at any time.
The descriptor reaches the memory of one process and nothing else, whatever the number. It is opened
before any candidate code runs, for the process that the kernel names, and stays with the memory
which that process had then: one that makes itself unreadable afterwards is still read, one that
runs another program has left nothing to be read.

Pages that are shared, or a file's, may lie at many addresses: whoever writes one row there has
written all that are alike. So an output must lie in pages that are nobody else's, which have one
address each (`Memory.look` names the others), or in the ring, which the judge reads through its
own mapping. Zeros may lie anywhere: nobody writes those of fresh memory, which are one page, too.
Pages that are not there may be a file's, so they may hold zeros only; and whoever reads them first
has the kernel make them, which is charged.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from functools import cache
from typing import NamedTuple

from cudal1.harness.wire import HELLO

CREDENTIALS = struct.Struct("3i")
"""What the kernel says of who sent a message: process, user, group."""
CLOSED = -1
ENTRY_BYTES = 8
"""Of `/proc/PID/pagemap`; the last one holds the flags."""
SHARED, THERE = 0x20, 0xC0
"""Of a file or shared; in memory or swapped out (proc_pid_pagemap(5))."""
OWN = bytes(flags for flags in range(256) if flags & THERE and not flags & SHARED)
TRIED_BYTES = 4 << 20


class Look(NamedTuple):
    """What the kernel says of the pages of an output."""

    doubtful: list[slice]
    """Which bytes lie in pages that are shared, of a file, or not there: they may be alike."""
    num_untouched: int = 0
    """Pages that are not there yet."""


class Memory:
    """One process's memory. Reading it never fails: what cannot be read is not read."""

    def __init__(self) -> None:
        self._descriptor = self._map = CLOSED
        self.process: int | None = None
        """Whose it is, where the kernel said so."""

    def open(self, process: int) -> None:
        """Open that of a process, if the kernel lets us."""
        self.process = process or None
        self._descriptor, self._map = _opened(process, "mem"), _opened(process, "pagemap")

    def read(self, target: memoryview, place: int) -> None:
        """Fill `target` with what lies at `place`; what cannot be read stays as it is there."""
        try:
            os.preadv(self._descriptor, [target], place)
        except (OSError, OverflowError):
            return

    def look(self, place: int, num_bytes: int) -> Look:
        """What the kernel says of the pages there; where it does not say, all is doubtful."""
        first = place // mmap.PAGESIZE
        flags = self._flags(first, (place + num_bytes - 1) // mmap.PAGESIZE + 1 - first)
        if not flags:
            return Look([slice(0, num_bytes)])
        if not flags.translate(None, OWN):
            return Look([])
        start = first * mmap.PAGESIZE - place
        doubtful = [
            slice(max(0, start + page * mmap.PAGESIZE), start + (page + 1) * mmap.PAGESIZE)
            for page, each in enumerate(flags) if each & SHARED or not each & THERE
        ]  # fmt: skip
        return Look(doubtful, sum(not each & THERE for each in flags))

    def _flags(self, first: int, count: int) -> bytes:
        """Of each page; none at all if they are not all told."""
        try:
            told = os.pread(self._map, count * ENTRY_BYTES, first * ENTRY_BYTES)
        except (OSError, OverflowError):
            return b""
        return told[ENTRY_BYTES - 1 :: ENTRY_BYTES] if len(told) == count * ENTRY_BYTES else b""

    def close(self) -> None:
        """Read nothing from now on; idempotent."""
        descriptors, self._descriptor, self._map = (self._descriptor, self._map), CLOSED, CLOSED
        for descriptor in descriptors:
            if descriptor != CLOSED:
                os.close(descriptor)


def _opened(process: int, name: str) -> int:
    try:
        return os.open(f"/proc/{process}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return CLOSED


def ask_for_sender(channel: socket.socket, *, wanted: bool) -> None:
    """Have the kernel say with each message who sent it; to be asked before it is sent."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, int(wanted))


def meet(channel: socket.socket, memory: Memory) -> bool:
    """Receive a worker's hello and open its memory; whether that reads as the worker says.

    What it says is believed: it has no candidate yet.

    Raises:
        OSError: it is gone, or says nothing.
    """
    message, ancillary, _, _ = channel.recvmsg(HELLO.size, socket.CMSG_SPACE(CREDENTIALS.size))
    if not message:
        raise ConnectionResetError("it ended before it said anything")
    ask_for_sender(channel, wanted=False)
    process = CREDENTIALS.unpack(ancillary[0][2])[0] if ancillary else 0
    place, expected = HELLO.unpack(message)
    found = bytearray(len(expected))
    memory.open(process)
    memory.read(memoryview(found), place)
    return found == expected and not memory.look(place, len(expected)).doubtful


@cache
def touch_ns() -> float:
    """What reading a page for the first time takes beyond reading it again: the best of a few each.

    Not of their differences: a single disturbed second time would let pages cost nothing for good.
    """
    first_ns: list[int] = []
    again_ns: list[int] = []
    for _ in range(5):
        with mmap.mmap(-1, TRIED_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as fresh:
            times_ns = [time.perf_counter_ns()]
            for _ in range(2):
                fresh.find(b"1")
                times_ns.append(time.perf_counter_ns())
        begun_ns, read_ns, read_again_ns = times_ns
        first_ns.append(read_ns - begun_ns)
        again_ns.append(read_again_ns - read_ns)
    return max(0, min(first_ns) - min(again_ns)) * mmap.PAGESIZE / TRIED_BYTES
