"""A worker's own memory, read by its judge: an output is taken from where it was computed.

Threat: where an output lies is the worker's word, and what lies there is its to change at any time.
The descriptor reaches the memory of one process and nothing else, whatever the number. It is opened
before any candidate code runs, for the process that the kernel names, and stays with the memory
which that process had then: one that makes itself unreadable afterwards is still read, one that
runs another program has left nothing to be read.
"""

from __future__ import annotations

import os
import socket
import struct

from cudal1.harness.wire import HELLO

CREDENTIALS = struct.Struct("3i")
"""What the kernel says of who sent a message: process, user, group."""
CLOSED = -1


class Memory:
    """One process's memory. Reading it never fails: what cannot be read is not read."""

    def __init__(self) -> None:
        self._descriptor = CLOSED

    def open(self, process: int) -> None:
        """Open that of a process, if the kernel lets us."""
        try:
            self._descriptor = os.open(f"/proc/{process}/mem", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = CLOSED

    def read(self, target: memoryview, place: int) -> None:
        """Fill `target` with what lies at `place`; what cannot be read stays as it is there."""
        try:
            os.preadv(self._descriptor, [target], place)
        except (OSError, OverflowError):
            return

    def close(self) -> None:
        """Read nothing from now on; idempotent."""
        descriptor, self._descriptor = self._descriptor, CLOSED
        if descriptor != CLOSED:
            os.close(descriptor)


def ask_for_sender(channel: socket.socket, *, wanted: bool) -> None:
    """Have the kernel say with each message who sent it; to be asked before it is sent."""
    channel.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, int(wanted))


def meet(channel: socket.socket, memory: Memory) -> bool:
    """Receive a worker's hello and open its memory; whether it reads as the worker says.

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
    return found == expected
