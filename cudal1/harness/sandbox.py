"""Start, watch and kill one worker process and everything that it started.

Threat: a worker may crash, hang, fork, fill memory, kill what it can see, or work when it is
another's turn. It sees its own namespaces (where the kernel grants them), an empty environment, a
private folder and its shared memory; process 1 of its namespace, the warden, stops all that it
started at the judge's word, and takes them along when it ends. What stands around it is
`worker.confinement`, and around the process that forks it `launch`.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import select
import socket
from collections.abc import Sequence
from typing import Self

from cudal1.errors import WorkerError
from cudal1.harness import wire
from cudal1.harness.cgroup import Cage
from cudal1.harness.launch import START_LIMIT_S, received, remove
from cudal1.harness.layers import require
from cudal1.harness.memory import Memory, ask_for_sender
from cudal1.harness.rings import Ring
from cudal1.harness.wire import FREEZE, LIMITS, THAW, WATCH, WORKED, Job, Word

ANSWER_LIMIT_S = 20.0
"""For a warden to say that all stand still; it gives up by itself long before."""
END_LIMIT_S = 20.0
"""For a killed worker to end: a driver may wait for what it has on a GPU."""


class Worker:
    """The judge's handle on one sandboxed process."""

    def __init__(self, job: Job, spare: Spare, control: mmap.mmap, ring: Ring) -> None:
        self.job = job
        self.layers: tuple[str, ...] = ()
        """What stood around it before any candidate code ran; known once it was welcomed."""
        self.ring = ring
        self._has_ring = True
        self.worked_ns = 0
        """What it and all that it started computed between the last two stops."""
        self.held_bytes = 0
        """What they have in memory."""
        self.has_changed = False
        """Whether any of them began or ended meanwhile."""
        self.num_published = 0
        """Calls that were ever asked of it; the judge's own count."""
        self._num_weights = 0
        self._is_frozen = False
        self._control = memoryview(control)
        self._words = self._control[: wire.TEXT_OFFSET].cast("Q")
        self.places = self._control[wire.PLACES_OFFSET :].cast("Q")
        """Where the worker says its outputs lie, by slot and output: on a CPU in its own memory, on
        a GPU in the ring; 0: nowhere yet, or in the slot."""
        self.memory = spare.memory
        self._spare = spare

    @property
    def num_done(self) -> int:
        """Calls that the worker claims to have finished."""
        return self._words[Word.DONE]

    @property
    def num_awake(self) -> int:
        """Calls that the worker claims to be ready for."""
        return self._words[Word.AWAKE]

    @property
    def state(self) -> int:
        """A `State`, or whatever the worker wrote there."""
        return self._words[Word.STATE]

    def display_text(self) -> str:
        """The worker's own words about its failure: one line, for people, never for decisions."""
        length = min(self._words[Word.TEXT_LENGTH], wire.TEXT_BYTES)
        raw = bytes(self._control[wire.TEXT_OFFSET : wire.TEXT_OFFSET + length])
        text = raw.decode("utf-8", "replace").replace(self.job.folder, ".")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:500]

    def is_alive(self) -> bool:
        """Whether the worker still runs."""
        return self._spare.is_alive()

    def freeze(self) -> None:
        """Stop it and all that it started; returns when they stand still. A dead one stays dead.

        One that cannot be stopped is killed. Outside of timed intervals only.
        """
        if not self._is_frozen:
            self._is_frozen = True
            answer = self._spare.command(FREEZE) or WORKED.pack(FREEZE, 0, 0, True)
            _, self.worked_ns, self.held_bytes, self.has_changed = WORKED.unpack(answer)

    def thaw(self) -> None:
        """Let it go on; one that did not stand still all the time is killed."""
        if self._is_frozen:
            self._is_frozen = False
            self._spare.command(THAW)

    def go(self, num_calls: int, *, keep: bool) -> None:
        """Wake it for what comes next in a burst of so many calls; it is then to be announced."""
        self._words[Word.NUM_CALLS] = num_calls
        self._words[Word.KEEP] = int(keep)
        # a worker that does not listen, or no more, is found out by waiting for it
        with contextlib.suppress(OSError):
            self._spare.channel.send(b"g", socket.MSG_DONTWAIT)

    def forget_places(self, num_calls: int) -> None:
        """Clear what it said of earlier calls: an early "done" must not point at their outputs."""
        size = num_calls * len(self.job.layout.outputs) * wire.WORD_BYTES
        self._control[wire.PLACES_OFFSET : wire.PLACES_OFFSET + size] = bytes(size)

    def announce(self, num_calls: int) -> None:
        """Say that so many further inputs lie in the ring."""
        self.num_published += num_calls
        self._words[Word.PUBLISHED] = self.num_published

    def announce_weights(self) -> None:
        """Say that the ring holds other weights, to be loaded before the next burst."""
        self._num_weights += 1  # our own count: the word is the worker's to scribble on
        self._words[Word.WEIGHTS] = self._num_weights

    def welcome(self, minimum: tuple[tuple[str, ...], ...], marks: tuple[str, ...]) -> bool:
        """Receive its greeting and bound what it may take; false when it never came about.

        Raises:
            SandboxError: less than `minimum` stands around it.
            WorkerError: the kernel refuses the bounds of its control group.
        """
        if not self.layers:
            greeting = self._spare.greeting()
            if not greeting:
                return False
            self.layers = (*wire.layers_of(greeting), *marks)
            self._spare.bound(self.job)
            require(self.layers, minimum)
        return True

    def load(self, source: str) -> None:
        """Give it what it is to run, which it reads once it is confined."""
        content = os.memfd_create("source", os.MFD_CLOEXEC)
        try:
            os.write(content, source.encode("utf-8", "surrogatepass"))
            # a worker that is not there any more is found out by waiting for it
            with contextlib.suppress(OSError):
                send_with(self._spare.channel, b"source", (content,))
        finally:
            os.close(content)

    def dismiss(self) -> None:
        """Have it killed, and all it started, without waiting for that; idempotent."""
        self._spare.hang_up()

    def end(self) -> bool:
        """Kill it and all it started, but keep its ring; whether all have ended. Idempotent."""
        self.dismiss()
        return self._spare.close()

    def close(self) -> bool:
        """Kill it and all it started; whether all have ended. Idempotent."""
        ended = self.end()
        remove(self.job.folder)
        if ended and self._has_ring:
            self._has_ring = False
            self.ring.release()
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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
        """Whether its keeper runs: only the keeper holds the other end."""
        return self._life.fileno() >= 0 and not select.select([self._life], [], [], 0)[0]

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
        ended, _, _ = select.select([self._life], [], [], END_LIMIT_S)
        self._has_ended = bool(ended)
        self._life.close()
        self._leash.close()
        self._cage.close()
        return self._has_ended


def send_with(channel: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    """A message that carries descriptors."""
    sent = array.array("i", descriptors)
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent.tobytes())])
