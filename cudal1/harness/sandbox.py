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
from collections.abc import Sequence
from dataclasses import replace
from typing import Self

from cudal1.errors import SandboxError, WorkerError
from cudal1.harness import wire
from cudal1.harness.cgroup import Cage
from cudal1.harness.device import Device
from cudal1.harness.launch import START_LIMIT_S, launch, received, remove
from cudal1.harness.layers import MINIMUM, require
from cudal1.harness.memory import Memory, ask_for_sender, meet
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

    def __init__(
        self, job: Job, spare: _Spare, control: mmap.mmap, ring: Ring, layers: tuple[str, ...]
    ) -> None:
        self.job = job
        self.layers = layers
        """What stood around it before any candidate code ran."""
        self.ring = ring
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

    def close(self) -> None:
        """Kill it and all it started; idempotent."""
        self._spare.close()
        self.ring.release()
        remove(self.job.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Spare:
    """A forked worker without a job: our ends of its channel, of its leash and of its life."""

    def __init__(self, zygote: socket.socket) -> None:
        self._cage = Cage.make()
        self.memory = Memory()
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ask_for_sender(self.channel, wanted=True)
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
        if self._leash.fileno() < 0:
            return
        try:
            self._leash.send(order)
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

    def close(self) -> None:
        """Have the keeper kill it, and wait until that is done; idempotent."""
        if self._life.fileno() < 0:
            return
        self.channel.close()
        self.memory.close()
        self._life.shutdown(socket.SHUT_WR)
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
        self._num_spares = NUM_SPARES[device.device_class]
        # the first worker that is there tells; the fake device's stream stores what it is given
        self._in_place = None if device.device_class is DeviceClass.CPU else False
        self._source = launch(device)

    def start(self, job: Job, ring: Ring) -> Worker:
        """Give `job` and `ring` to a fresh worker, whose folder is made here.

        What stands around it is known only once it stands: start one that runs our own code first.

        Raises:
            WorkerError: the machinery failed.
            SandboxError: less than the minimum stands around it.
        """
        control_descriptor, control = sealed("control", wire.CONTROL_BYTES)
        content = os.memfd_create("job", os.MFD_CLOEXEC)
        try:
            spare = self._next()
            folder = tempfile.mkdtemp(dir=self._source.folder)
            job = replace(job, folder=folder, in_place=bool(self._in_place))
            os.write(content, job.encode())
            _send_with(spare.channel, b"job", (control_descriptor, ring.descriptor, content))
            self._top_up(self._num_spares)
            greeting = received(spare.channel)
        except OSError as error:
            raise self._source.broken("cannot be reached") from error
        finally:
            for descriptor in (control_descriptor, ring.descriptor, content):
                os.close(descriptor)
        if not greeting:
            spare.close()
            raise self._source.broken("could not confine a new worker")
        layers = (*wire.layers_of(greeting), *self._marks)
        worker = Worker(job, spare, control, ring, layers)
        try:
            spare.bound(job)
            require(layers, self._minimum)
        except (SandboxError, WorkerError):
            worker.close()
            raise
        return worker

    def close(self) -> None:
        """End the zygote; its workers end with their own handles."""
        for spare in self._spares:
            spare.close()
        self._source.close()

    def _next(self) -> _Spare:
        """A worker that is there, has no job yet, and has its outputs read as all others have."""
        self._top_up(1)
        spare = self._spares.pop(0)
        spare.channel.settimeout(START_LIMIT_S)
        is_readable = meet(spare.channel, spare.memory)
        if self._in_place is None:
            self._in_place = is_readable
        if self._in_place and not is_readable:
            spare.close()
            raise self._source.broken("started a worker whose memory cannot be read")
        return spare

    def _top_up(self, count: int) -> None:
        while len(self._spares) < count:
            self._spares.append(_Spare(self._source.channel))


def _send_with(channel: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    sent = array.array("i", descriptors)
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent.tobytes())])
