"""A worker that was forked and has no job yet, and our ends of all that leads to it.

Threat: as for `sandbox.Worker`, which it becomes: it is stopped, bounded and ended by its warden
and its keeper, who run no candidate code.
"""

from __future__ import annotations

import array
import contextlib
import select
import socket
from collections.abc import Sequence

from cudal1.errors import WorkerError
from cudal1.harness.cgroup import Cage
from cudal1.harness.launch import START_LIMIT_S, received
from cudal1.harness.memory import Memory, ask_for_sender
from cudal1.harness.wire import LIMITS, WATCH, WORKED, Job

ANSWER_LIMIT_S = 20.0
"""For a warden to say that all stand still; it gives up by itself long before."""
END_LIMIT_S = 20.0
"""For a killed worker to end: a driver may wait for what it has on a GPU."""


class Spare:
    """A forked worker without a job: our ends of its channel, of its leash and of its life."""

    def __init__(self, zygote: socket.socket) -> None:
        self._cage = Cage.make()
        self._has_ended = False
        self.memory = Memory()
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ask_for_sender(self.channel, wanted=True)
        self._leash, their_leash = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._life, their_life = socket.socketpair()
        self._leash.settimeout(ANSWER_LIMIT_S)
        with theirs, their_leash, their_life, self._cage.doors() as doors:
            theirs_all = (theirs.fileno(), their_leash.fileno(), their_life.fileno(), *doors)
            send_with(zygote, b"fork", theirs_all)

    def is_alive(self) -> bool:
        """Whether its keeper runs."""
        return not self.has_ended(0.0)

    def has_ended(self, within_s: float) -> bool:
        """Whether its keeper has, or does so soon: only the keeper holds the other end."""
        return self._life.fileno() < 0 or _is_readable(self._life, within_s)

    def command(self, order: bytes) -> bytes:
        """Have the warden stop it or let it go on, and return what the warden answers.

        A warden that does not answer ends with it.
        """
        self.ask(order)
        return self.await_answer(order)

    def ask(self, order: bytes) -> None:
        """The first half of `command`."""
        with contextlib.suppress(OSError):
            self._leash.send(order)

    def await_answer(self, order: bytes) -> bytes:
        """The second half of `command`."""
        if self._leash.fileno() < 0:
            return b""
        try:
            answer = self._leash.recv(WORKED.size)
        except OSError:
            answer = b""
        if not answer.startswith(order):
            self.close()
            return b""
        return answer

    def bound(self, job: Job) -> None:
        """Say how much memory all that it starts may take, and on which core the warden is not.

        Raises:
            WorkerError: the kernel refuses the bounds of its control group.
        """
        extra_bytes = job.memory_bytes + job.ring_bytes
        core = -1 if job.core is None else job.core
        try:
            self._cage.bound(extra_bytes)
        except OSError as error:
            raise WorkerError(f"cannot bound a worker's memory: {error}") from error
        with contextlib.suppress(OSError):  # it may be dead already
            self._leash.send(WATCH + LIMITS.pack(extra_bytes, core))

    def greeting(self) -> bytes:
        """What it says once it is confined; empty when it never does."""
        self.channel.settimeout(START_LIMIT_S)
        return received(self.channel)

    def hang_up(self) -> None:
        """Have the keeper kill it; idempotent."""
        if self._life.fileno() >= 0 and self.channel.fileno() >= 0:
            self.channel.close()
            self.memory.close()
            self._life.shutdown(socket.SHUT_WR)

    def close(self) -> bool:
        """Have the keeper kill it, and wait until that is done; whether it is. Idempotent."""
        if self._life.fileno() < 0:
            return self._has_ended
        self.hang_up()
        # the keeper ends after its worker is dead
        self._has_ended = _is_readable(self._life, END_LIMIT_S)
        self._life.close()
        self._leash.close()
        self._cage.close()
        return self._has_ended


def _is_readable(channel: socket.socket, within_s: float) -> bool:
    poller = select.poll()  # `select` knows no descriptors above 1023
    poller.register(channel, select.POLLIN)
    return bool(poller.poll(1000 * within_s))


def send_with(channel: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    """A message that carries descriptors."""
    sent = array.array("i", descriptors)
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent.tobytes())])
