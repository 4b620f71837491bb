"""Hold a forked worker that has no job yet, and the judge's ends of all sockets that lead to it.

Threat: as for `sandbox.Worker`, which an idle worker becomes. Its warden and its keeper stop, bound
and end it; they run no candidate code.
"""

from __future__ import annotations

import array
import contextlib
import select
import socket
from collections.abc import Sequence

from cudal1.errors import WorkerError
from cudal1.harness.sandbox.cgroup import Cage
from cudal1.harness.sandbox.launch import START_LIMIT_S, received
from cudal1.harness.sandbox.memory import Memory, ask_for_sender
from cudal1.harness.shared.wire import LIMITS, WATCH, WORKED, Job

ANSWER_LIMIT_S = 20.0
"""Seconds for a warden to say that all processes stand still; it gives up by itself long before."""
END_LIMIT_S = 20.0
"""Seconds for a killed worker to end: a driver may wait for what the worker has on a GPU."""


class IdleWorker:
    """A forked worker without a job: the judge's ends of its channel, its leash and its life."""

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
        """Return whether the worker's keeper runs."""
        return not self.has_ended(0.0)

    def has_ended(self, within_s: float) -> bool:
        """Return whether the worker's keeper has ended, or ends within so many seconds.

        Only the keeper holds the other end of the life socket.
        """
        return self._life.fileno() < 0 or _is_readable(self._life, within_s)

    def command(self, order: bytes) -> bytes:
        """Have the warden stop the worker or let it go on; return the warden's answer.

        A warden that does not answer is ended together with the worker.
        """
        self.ask(order)
        return self.await_answer(order)

    def ask(self, order: bytes) -> None:
        """Send an order to the warden: the first half of `command`."""
        with contextlib.suppress(OSError):
            self._leash.send(order)

    def await_answer(self, order: bytes) -> bytes:
        """Return the warden's answer, empty if none comes: the second half of `command`."""
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
        """Bound the memory of all that the worker starts; keep the warden off the worker's core.

        Raises:
            WorkerError: the kernel refuses the bounds of the worker's control group.
        """
        extra_bytes = job.memory_bytes + job.ring_bytes
        core = -1 if job.core is None else job.core
        try:
            self._cage.bound(extra_bytes)
        except OSError as error:
            raise WorkerError(f"cannot bound a worker's memory: {error}") from error
        with contextlib.suppress(OSError):  # the worker may be dead already
            self._leash.send(WATCH + LIMITS.pack(extra_bytes, core))

    def greeting(self) -> bytes:
        """Return what the worker says once it is confined; empty if it says nothing."""
        self.channel.settimeout(START_LIMIT_S)
        return received(self.channel)

    def hang_up(self) -> None:
        """Have the keeper kill the worker; idempotent."""
        if self._life.fileno() >= 0 and self.channel.fileno() >= 0:
            self.channel.close()
            self.memory.close()
            self._life.shutdown(socket.SHUT_WR)

    def close(self) -> bool:
        """Have the keeper kill the worker, and wait for that; return whether it has ended.

        Idempotent.
        """
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
    """Send a message that carries descriptors."""
    sent = array.array("i", descriptors)
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent.tobytes())])
