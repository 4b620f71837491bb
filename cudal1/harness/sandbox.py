"""Start, watch and kill one worker process and everything that it started.

Threat: a worker may crash, hang, fork, fill memory, kill what it can see, or work when it is
another's turn. It sees its own namespaces (where the kernel grants them), an empty environment, a
private folder and its shared memory; process 1 of its namespace, the warden, stops all that it
started at the judge's word, and takes them along when it ends. What stands around it is
`worker.confinement`, and around the process that forks it `launch`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from typing import BinaryIO, Self

from cudal1.harness import places, wire
from cudal1.harness.launch import remove
from cudal1.harness.layers import require
from cudal1.harness.lines import one_line
from cudal1.harness.patience import Computed
from cudal1.harness.rings import Ring, sealed
from cudal1.harness.spare import Spare, send_with
from cudal1.harness.wire import (
    COMPUTED,
    FREEZE,
    GO,
    HAND_OVER,
    HANDED_OVER,
    LOOK,
    MAX_BUILDS_BYTES,
    THAW,
    WORKED,
    Job,
    Word,
)  # fmt: skip

BUILDS_LIMIT_S = 8.0
"""Seconds for a worker to hand over what it compiled."""


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
        text = raw.decode("utf-8", "replace")
        for folder in (self.job.folder, places.HOME):
            text = text.replace(folder, ".")
        return one_line(text)

    def is_alive(self) -> bool:
        """Whether the worker still runs."""
        return self._spare.is_alive()

    def has_ended(self, within_s: float) -> bool:
        """Whether it has, or ends within so many seconds."""
        return self._spare.has_ended(within_s)

    @property
    def is_frozen(self) -> bool:
        """Whether it stands still."""
        return self._is_frozen

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

    def computed(self) -> Computed:
        """Return what it and all that it started have computed; nothing of one that has died."""
        _, own_ns, others_ns = COMPUTED.unpack(
            self._spare.command(LOOK) or COMPUTED.pack(LOOK, 0, 0)
        )
        return Computed(own_ns, others_ns)

    def go(self, num_calls: int, *, order: int) -> None:
        """Wake it for what comes next in a burst of so many calls; it is then to be announced.

        `order` is how the burst is run, as `wire` numbers it.
        """
        self._words[Word.NUM_CALLS] = num_calls
        self._words[Word.ORDER] = order
        # a worker that does not listen, or no more, is found out by waiting for it
        with contextlib.suppress(OSError):
            self._spare.channel.send(GO, socket.MSG_DONTWAIT)

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

    def load(self, source: str, builds: bytes = b"") -> None:
        """Give it what it is to run, which it reads once it is confined.

        Args:
            source: of the module.
            builds: what an earlier process with this source had compiled (`hand_over`).
        """
        contents = [source.encode("utf-8", "surrogatepass"), *([builds] if builds else [])]
        with contextlib.ExitStack() as files:
            sent = [files.enter_context(_file_of(content)) for content in contents]
            # a worker that is not there any more is found out by waiting for it
            with contextlib.suppress(OSError):
                send_with(self._spare.channel, b"source", [file.fileno() for file in sent])

    def hand_over(self, limit_s: float | None = None) -> bytes:
        """What it compiled, which nobody else ever reads; empty if it says nothing in time.

        The last that is asked of a worker. The file is of one size and sealed, and its memory is
        nobody's, so it is emptied.
        """
        self.thaw()
        channel = self._spare.channel
        descriptor, shared = sealed("builds", MAX_BUILDS_BYTES)
        try:
            channel.settimeout(BUILDS_LIMIT_S if limit_s is None else limit_s)
            channel.send(HAND_OVER)
            send_with(channel, b"file", [descriptor])
            answer = channel.recv(HANDED_OVER.size)
        except OSError:  # it has gone, or does not listen
            answer = b""
        finally:
            os.close(descriptor)
        self.freeze()
        size = HANDED_OVER.unpack(answer)[0] if len(answer) == HANDED_OVER.size else 0
        content = shared[:size] if size <= MAX_BUILDS_BYTES else b""
        shared.madvise(mmap.MADV_REMOVE)
        shared.close()
        return content

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


def _file_of(content: bytes) -> BinaryIO:
    """An anonymous file with that content."""
    file = os.fdopen(os.memfd_create("content", os.MFD_CLOEXEC), "wb")
    file.write(content)
    file.seek(0)
    return file
