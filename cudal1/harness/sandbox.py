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
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Self

from cudal1.errors import SandboxError, WorkerError
from cudal1.harness import wire
from cudal1.harness.cgroup import Cage
from cudal1.harness.device import Device
from cudal1.harness.launch import START_LIMIT_S, launch, received, remove
from cudal1.harness.layers import MINIMUM, require
from cudal1.harness.rings import Ring, sealed
from cudal1.harness.wire import FREEZE, LIMITS, THAW, WATCH, Job, Word
from cudal1.problem import DeviceClass
from cudal1.verdict import UNSAFE

ANSWER_LIMIT_S = 20.0
"""For a warden to say that all stand still; it gives up by itself long before."""
NUM_SPARES = {DeviceClass.CPU: 2, DeviceClass.FAKE: 2, DeviceClass.CUDA: 6}
"""Workers that wait, forked and confined to namespaces, for the next job."""


class Worker:
    """The judge's handle on one sandboxed process."""

    def __init__(self, job: Job, spare: _Spare, control: mmap.mmap, ring: Ring) -> None:
        self.job = job
        self.layers: tuple[str, ...] = ()
        """What stood around it before any candidate code ran; known once it was welcomed."""
        self.ring = ring
        self.num_published = 0
        """Calls that were ever asked of it; the judge's own count."""
        self._num_weights = 0
        self._is_frozen = False
        self._control = memoryview(control)
        self._words = self._control[: wire.TEXT_OFFSET].cast("Q")
        self.places = self._control[wire.PLACES_OFFSET :].cast("Q")
        """Where in the ring the worker says its outputs lie, by slot and output; 0: in the slot."""
        self._spare = spare

    @property
    def num_done(self) -> int:
        """Calls that the worker claims to have finished."""
        return self._words[Word.DONE]

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
            self._spare.command(FREEZE)

    def thaw(self) -> None:
        """Let it go on; one that did not stand still all the time is killed."""
        if self._is_frozen:
            self._is_frozen = False
            self._spare.command(THAW)

    def go(self, num_calls: int, *, keep: bool) -> None:
        """Wake it for a burst; its calls begin as their inputs are announced."""
        self._words[Word.NUM_CALLS] = num_calls
        self._words[Word.KEEP] = int(keep)
        # a worker that does not listen, or no more, is found out by waiting for it
        with contextlib.suppress(OSError):
            self._spare.channel.send(b"g", socket.MSG_DONTWAIT)

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

    def dismiss(self) -> None:
        """Have it killed, and all it started, without waiting for that; idempotent."""
        self._spare.hang_up()
        self.ring.release()

    def close(self) -> None:
        """Kill it and all it started; idempotent."""
        self.dismiss()
        self._spare.close()
        remove(self.job.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Spare:
    """A forked worker without a job: our ends of its channel, of its leash and of its life."""

    def __init__(self, zygote: socket.socket) -> None:
        self._cage = Cage.make()
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._leash, their_leash = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._life, their_life = socket.socketpair()
        self._leash.settimeout(ANSWER_LIMIT_S)
        with theirs, their_leash, their_life, self._cage.doors() as doors:
            theirs_all = (theirs.fileno(), their_leash.fileno(), their_life.fileno(), *doors)
            _send_with(zygote, b"fork", theirs_all)

    def is_alive(self) -> bool:
        """Whether its keeper runs: only the keeper holds the other end."""
        return self._life.fileno() >= 0 and not select.select([self._life], [], [], 0)[0]

    def command(self, order: bytes) -> None:
        """Have the warden stop it or let it go on; a warden that does not answer ends with it."""
        self.ask(order)
        self.await_answer(order)

    def ask(self, order: bytes) -> None:
        """The first half of `command`."""
        with contextlib.suppress(OSError):
            self._leash.send(order)

    def await_answer(self, order: bytes) -> None:
        """The second half of `command`."""
        if self._leash.fileno() < 0:
            return
        try:
            answer = self._leash.recv(len(order))
        except OSError:
            answer = b""
        if answer != order:
            self.close()

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
            self._life.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Have the keeper kill it, and wait until that is done; idempotent."""
        if self._life.fileno() < 0:
            return
        self.hang_up()
        select.select([self._life], [], [], 5.0)  # the keeper ends after its worker is dead
        self._life.close()
        self._leash.close()
        self._cage.close()


class Zygote:
    """The warmed-up process that forks workers; start one for each judge.

    Args:
        device: what its workers may use.
        minimum: groups of layers (`layers.MINIMUM`); of each one must hold around a worker.
        unsafe: start workers even where they do not, and say so among the layers of each.

    Raises:
        WorkerError: it does not start.
    """

    def __init__(
        self, device: Device, *, minimum: tuple[tuple[str, ...], ...] = MINIMUM,
        unsafe: bool = False,
    ) -> None:  # fmt: skip
        self._minimum = () if unsafe else minimum
        self._marks = (UNSAFE,) if unsafe else ()
        self._spares: list[_Spare] = []
        self._leaving: list[Worker] = []
        self._is_still = False
        self._num_spares = NUM_SPARES[device.device_class]
        self._source = launch(device)

    def start(self, job: Job, ring: Ring) -> Worker:
        """Give `job` and `ring` to a fresh worker, whose folder is made here, and welcome it.

        What stands around it is known only once it stands: start one that runs our own code first.

        Raises:
            WorkerError: the machinery failed.
            SandboxError: less than the minimum stands around it.
        """
        return self.welcome(self.begin(job, ring))

    def begin(self, job: Job, ring: Ring) -> Worker:
        """The same without waiting for the worker, which is to be welcomed later.

        Raises:
            WorkerError: the machinery failed.
        """
        job = replace(job, folder=tempfile.mkdtemp(dir=self._source.folder))
        control_descriptor, control = sealed("control", wire.CONTROL_BYTES)
        content = os.memfd_create("job", os.MFD_CLOEXEC)
        os.write(content, job.encode())
        try:
            self._top_up(1)
            spare = self._spares.pop(0)
            if self._is_still:
                spare.command(THAW)
            _send_with(spare.channel, b"job", (control_descriptor, ring.descriptor, content))
            if not self._is_still:
                self._top_up(self._num_spares)
        except OSError as error:
            ring.release()
            raise self._source.broken("cannot be reached") from error
        finally:
            for descriptor in (control_descriptor, ring.descriptor, content):
                os.close(descriptor)
        return Worker(job, spare, control, ring)

    def welcome(self, worker: Worker) -> Worker:
        """Wait until a worker that was begun is confined.

        Raises:
            WorkerError: the machinery failed.
            SandboxError: less than the minimum stands around it.
        """
        try:
            came = worker.welcome(self._minimum, self._marks)
        except (SandboxError, WorkerError):
            worker.close()
            raise
        if not came:
            worker.close()
            raise self._source.broken("could not confine a new worker")
        return worker

    @contextlib.contextmanager
    def lent(self, worker: Worker) -> Iterator[Worker]:
        """Have it dismissed at the end."""
        try:
            yield worker
        finally:
            self.dismiss(worker)

    def dismiss(self, worker: Worker) -> None:
        """Have it end: its death takes a while on a GPU; `settle` waits for it."""
        worker.dismiss()
        self._leaving.append(worker)

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """Have those that wait for a job stand still while others are timed.

        They have contexts to make, for which the driver interrupts what a GPU does.
        """
        self._is_still = True
        for spare in self._spares:
            spare.ask(FREEZE)
        for spare in self._spares:
            spare.await_answer(FREEZE)
        try:
            yield
        finally:
            self._is_still = False
            for spare in self._spares:
                spare.command(THAW)

    def settle(self) -> None:
        """Wait until all that were dismissed are gone."""
        while self._leaving:
            self._leaving.pop().close()

    def renew(self) -> None:
        """Give up the workers that wait for a job: they may not have come about."""
        for spare in self._spares:
            spare.close()
        self._spares.clear()

    def close(self) -> None:
        """End the zygote; its workers end with their own handles."""
        self.settle()
        self.renew()
        self._source.close()

    def _top_up(self, count: int) -> None:
        while len(self._spares) < count:
            self._spares.append(_Spare(self._source.channel))


def _send_with(channel: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    sent = array.array("i", descriptors)
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent.tobytes())])
