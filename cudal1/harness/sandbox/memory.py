"""Read a worker's own memory from the judge: an output is taken from where it was computed.

Threat: the place of an output is the worker's word, and the worker may change its bytes at any
time. The descriptor reaches the memory of one process and nothing else, whatever the number. The
judge opens it before any candidate code runs, for the process that the kernel names. The descriptor
stays with the memory that this process had then. A process that makes itself unreadable afterwards
is still read. A process that runs another program has left nothing to be read.

Pages that are shared, or a file's, may lie at many addresses: writing one row there writes all that
are alike. So an output must lie in one of two places. The first is pages that are the worker's
alone, which have one address each (`Memory.look` names the others). The second is the ring, which
the judge reads through its own mapping. Zeros may lie anywhere: pages of fresh memory hold zeros
without being written, and are one page, too. Pages that are not there may be a file's, so they may
hold zeros only. The first read of such a page has the kernel make it; the time that this takes is
charged.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
import time
from functools import cache
from typing import NamedTuple

from cudal1.harness.shared.wire import HELLO

CREDENTIALS = struct.Struct("3i")
"""Identity of a message's sender, from the kernel: process, user, group."""
CLOSED = -1
ENTRY_BYTES = 8
"""Bytes of an entry of `/proc/PID/pagemap`; the last one holds the flags."""
SHARED, THERE = 0x20, 0xC0
"""Flags of a page: of a file or shared; in memory or swapped out (proc_pid_pagemap(5))."""
OWN = bytes(flags for flags in range(256) if flags & THERE and not flags & SHARED)
TRIED_BYTES = 4 << 20


class Look(NamedTuple):
    """The state of the pages of an output, from the kernel."""

    doubtful: list[slice]
    """Bytes in pages that are shared, of a file, or not there: these pages may be alike."""
    num_untouched: int = 0
    """Number of pages that are not there yet."""


class Memory:
    """One process's memory; reading it never fails, and bytes that cannot be read are skipped."""

    def __init__(self) -> None:
        self._descriptor = self._map = CLOSED
        self.process: int | None = None
        """Number of the process, where the kernel told it."""

    def open(self, process: int) -> None:
        """Open the memory of a process, if the kernel permits it."""
        self.process = process or None
        self._descriptor, self._map = _opened(process, "mem"), _opened(process, "pagemap")

    def read(self, target: memoryview, place: int) -> None:
        """Fill `target` with the bytes at `place`; where none can be read, it keeps its bytes."""
        try:
            os.preadv(self._descriptor, [target], place)
        except (OSError, OverflowError):
            return

    def look(self, place: int, num_bytes: int) -> Look:
        """Return the state of the pages there; without the kernel's word all bytes are doubtful."""
        first = place // mmap.PAGESIZE
        flags = self._flags(first, (place + num_bytes - 1) // mmap.PAGESIZE + 1 - first)
        if not flags:
            return Look([slice(0, num_bytes)])
        if not flags.translate(None, OWN):
            return Look([])
        start = first * mmap.PAGESIZE - place
        doubtful = [
            slice(max(0, start + page * mmap.PAGESIZE), start + (page + 1) * mmap.PAGESIZE)
            for page, each in enumerate(flags)
            if each & SHARED or not each & THERE
        ]
        return Look(doubtful, sum(not each & THERE for each in flags))

    def _flags(self, first: int, count: int) -> bytes:
        """Return the flags of each page; none at all unless all are told."""
        try:
            told = os.pread(self._map, count * ENTRY_BYTES, first * ENTRY_BYTES)
        except (OSError, OverflowError):
            return b""
        return told[ENTRY_BYTES - 1 :: ENTRY_BYTES] if len(told) == count * ENTRY_BYTES else b""

    def close(self) -> None:
        """Close the memory, so that nothing more is read; idempotent."""
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
    """Have the kernel name the sender of each message; call it before the message is sent."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, int(wanted))


def meet(channel: socket.socket, memory: Memory) -> bool:
    """Receive a worker's hello and open its memory; return whether that reads as the worker says.

    The hello is believed: the worker has no candidate yet.

    Raises:
        OSError: the worker is gone, or says nothing.
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
    """Return the extra time of a page's first read over its second one, in ns.

    The shortest of a few first reads and the shortest of as many second reads count. The shortest
    difference would not do: a single disturbed second read would make pages cost nothing for good.
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
