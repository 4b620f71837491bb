"""Start, watch and kill one worker process and everything that it started.

Threat: a worker may crash, hang, fork, fill memory, kill what it can see, or work when it is
another's turn. It sees its own namespaces (where the kernel grants them), an empty environment, a
private folder and its shared memory. Process 1 of its namespace, the warden, stops all that the
worker started when the judge says so. When the warden ends, all these processes end with it.
`worker.confinement` builds what stands around a worker, and `launch` what stands around the process
that forks it.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import socket
from typing import BinaryIO, Self

from cudal1.harness.sandbox.idle_worker import IdleWorker, send_with
from cudal1.harness.sandbox.launch import remove
from cudal1.harness.sandbox.layers import require
from cudal1.harness.sandbox.patience import Computed
from cudal1.harness.sandbox.rings import Ring, sealed
from cudal1.harness.sandbox.sources import packed_source
from cudal1.harness.screen.lines import one_line
from cudal1.harness.shared import places, wire
from cudal1.harness.shared.wire import (
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
)

BUILDS_LIMIT_S = 8.0
"""Seconds for a worker to hand over what it compiled."""


class Worker:
    """The judge's handle on one sandboxed process."""

    def __init__(self, job: Job, idle: IdleWorker, control: mmap.mmap, ring: Ring) -> None:
        self.job = job
        self.layers: tuple[str, ...] = ()
        """Layers around the worker before any candidate code ran; known once the worker was
        welcomed."""
        self.ring = ring
        self._has_ring = True
        self.worked_ns = 0
        """Nanoseconds that the worker and all that it started computed between the last two
        stops."""
        self.held_bytes = 0
        """Bytes that they have in memory."""
        self.has_changed = False
        """True if any of these processes began or ended meanwhile."""
        self.num_published = 0
        """Number of calls that were ever asked of the worker; the judge's own count."""
        self._num_weights = 0
        self._is_frozen = False
        self._control = memoryview(control)
        self._words = self._control[: wire.TEXT_OFFSET].cast("Q")
        self.places = self._control[wire.PLACES_OFFSET :].cast("Q")
        """Places at which the worker says its outputs lie, by slot and output. On a CPU they lie in
        its own memory, on a GPU in the ring; 0: nowhere yet, or in the slot."""
        self.memory = idle.memory
        self._idle = idle

    @property
    def num_done(self) -> int:
        """The number of calls that the worker claims to have finished."""
        return self._words[Word.DONE]

    @property
    def num_awake(self) -> int:
        """The number of calls that the worker claims to be ready for."""
        return self._words[Word.AWAKE]

    @property
    def state(self) -> int:
        """A `State`, or whatever the worker wrote there."""
        return self._words[Word.STATE]

    def display_text(self) -> str:
        """Return the worker's own words on its failure: one line for people, not for decisions."""
        length = min(self._words[Word.TEXT_LENGTH], wire.TEXT_BYTES)
        raw = bytes(self._control[wire.TEXT_OFFSET : wire.TEXT_OFFSET + length])
        text = raw.decode("utf-8", "replace")
        for folder in (self.job.folder, places.HOME):
            text = text.replace(folder, ".")
        return one_line(text)

    def is_alive(self) -> bool:
        """Return whether the worker still runs."""
        return self._idle.is_alive()

    def has_ended(self, within_s: float) -> bool:
        """Return whether the worker has ended, or ends within so many seconds."""
        return self._idle.has_ended(within_s)

    @property
    def is_frozen(self) -> bool:
        """True if the worker stands still."""
        return self._is_frozen

    def freeze(self) -> None:
        """Stop the worker and all that it started, and wait until they stand still.

        A dead worker stays dead. A worker that cannot be stopped is killed. Call this outside of
        timed intervals only.
        """
        if not self._is_frozen:
            self._is_frozen = True
            answer = self._idle.command(FREEZE) or WORKED.pack(FREEZE, 0, 0, True)
            _, self.worked_ns, self.held_bytes, self.has_changed = WORKED.unpack(answer)

    def thaw(self) -> None:
        """Let the worker go on; kill a worker that did not stand still all the time."""
        if self._is_frozen:
            self._is_frozen = False
            self._idle.command(THAW)

    def computed(self) -> Computed:
        """Return what the worker and all that it started have computed; zeros for a dead worker."""
        _, own_ns, others_ns = COMPUTED.unpack(
            self._idle.command(LOOK) or COMPUTED.pack(LOOK, 0, 0)
        )
        return Computed(own_ns, others_ns)

    def go(self, num_calls: int, *, order: int) -> None:
        """Wake the worker for what comes next in a burst of so many calls; `announce` must follow.

        `order` is how the burst is run, as `wire` numbers it.
        """
        self._words[Word.NUM_CALLS] = num_calls
        self._words[Word.ORDER] = order
        # a worker that does not listen is found out by waiting for it
        with contextlib.suppress(OSError):
            self._idle.channel.send(GO, socket.MSG_DONTWAIT)

    def forget_places(self, num_calls: int) -> None:
        """Clear the places of earlier calls: an early "done" must not point at their outputs."""
        size = num_calls * len(self.job.layout.outputs) * wire.WORD_BYTES
        self._control[wire.PLACES_OFFSET : wire.PLACES_OFFSET + size] = bytes(size)

    def announce(self, num_calls: int) -> None:
        """Tell the worker that so many further inputs lie in the ring."""
        self.num_published += num_calls
        self._words[Word.PUBLISHED] = self.num_published

    def announce_weights(self) -> None:
        """Tell the worker that the ring holds other weights, to be loaded before the next burst."""
        self._num_weights += 1  # our own count: the worker may write to the word
        self._words[Word.WEIGHTS] = self._num_weights

    def welcome(self, minimum: tuple[tuple[str, ...], ...], marks: tuple[str, ...]) -> bool:
        """Receive the worker's greeting and set its bounds; return False if no greeting comes.

        Raises:
            SandboxError: fewer layers than `minimum` stand around the worker.
            WorkerError: the kernel refuses the bounds of the worker's control group.
        """
        if not self.layers:
            greeting = self._idle.greeting()
            if not greeting:
                return False
            self.layers = (*wire.layers_of(greeting), *marks)
            self._idle.bound(self.job)
            require(self.layers, minimum)
        return True

    def load(self, source: str, builds: bytes = b"") -> None:
        """Send the source that the worker is to run, which it reads once it is confined.

        Args:
            source: of the module.
            builds: what an earlier process with this source had compiled (`hand_over`).
        """
        contents = [packed_source(source), *([builds] if builds else [])]
        with contextlib.ExitStack() as files:
            sent = [files.enter_context(_file_of(content)) for content in contents]
            # a worker that has ended is found out by waiting for it
            with contextlib.suppress(OSError):
                send_with(self._idle.channel, b"source", [file.fileno() for file in sent])

    def hand_over(self, limit_s: float | None = None) -> bytes:
        """Return what the worker compiled; empty if it says nothing in time.

        Only the candidate's own processes ever read that. This is the last request to a worker. The
        file is of one size and sealed. Its memory belongs to no process, so the file is emptied.
        """
        self.thaw()
        channel = self._idle.channel
        descriptor, shared = sealed("builds", MAX_BUILDS_BYTES)
        try:
            channel.settimeout(BUILDS_LIMIT_S if limit_s is None else limit_s)
            channel.send(HAND_OVER)
            send_with(channel, b"file", [descriptor])
            answer = channel.recv(HANDED_OVER.size)
        except OSError:  # the worker has gone, or does not listen
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
        """Have the worker killed, with all it started, without waiting for that; idempotent."""
        self._idle.hang_up()

    def end(self) -> bool:
        """Kill the worker and all it started, but keep its ring.

        Return whether all have ended. Idempotent.
        """
        self.dismiss()
        return self._idle.close()

    def close(self) -> bool:
        """Kill the worker and all it started; return whether all have ended. Idempotent."""
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
    """Return an anonymous file with that content."""
    file = os.fdopen(os.memfd_create("content", os.MFD_CLOEXEC), "wb")
    file.write(content)
    file.seek(0)
    return file
