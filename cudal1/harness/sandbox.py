"""Start, watch and kill one worker process and everything that it started.

Threat: a worker may crash, hang, fork, fill memory, or kill what it can see. It sees its own
namespaces (where the kernel grants them), an empty environment, a private folder and its shared
memory; killing the keeper's child, process 1 of its namespace, ends all its descendants. What is not
kept out yet: reading files that this user may read (Landlock and bubblewrap are the next layers).
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from cudal1.errors import WorkerError
from cudal1.harness import wire
from cudal1.harness.wire import Job, Word

START_LIMIT_S = 120.0
"""For a new interpreter to import torch, on a busy machine."""


class Worker:
    """The judge's handle on one sandboxed process."""

    def __init__(
        self, job: Job, control: mmap.mmap, ring: mmap.mmap, go: int, pidfd: int, life: int
    ) -> None:
        self.job = job
        self.ring = memoryview(ring)
        self._control = memoryview(control)
        self._words = self._control[: wire.TEXT_OFFSET].cast("Q")
        self._go = go
        self._pidfd = pidfd
        self._life = life
        self._closed = False

    @property
    def num_done(self) -> int:
        """Calls that the worker claims to have finished."""
        return self._words[Word.DONE]

    @property
    def state(self) -> int:
        """A `State`, or whatever the worker wrote there."""
        return self._words[Word.STATE]

    @property
    def layers(self) -> tuple[str, ...]:
        """Sandbox layers that the trusted part of the worker saw active."""
        bits = self._words[Word.LAYERS]
        return tuple(name for i, name in enumerate(wire.LAYERS) if bits >> i & 1)

    def display_text(self) -> str:
        """The worker's own words about its failure: one line, for people, never for decisions."""
        length = min(self._words[Word.TEXT_LENGTH], wire.TEXT_BYTES)
        raw = bytes(self._control[wire.TEXT_OFFSET : wire.TEXT_OFFSET + length])
        text = raw.decode("utf-8", "replace").replace(self.job.folder, ".")
        return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:500]

    def is_alive(self) -> bool:
        """Whether the worker still runs."""
        return not select.select([self._pidfd], [], [], 0)[0]

    def go(self, num_calls: int) -> None:
        """Let it work through the first `num_calls` slots."""
        self._words[Word.NUM_CALLS] = num_calls
        os.write(self._go, (1).to_bytes(8, sys.byteorder))

    def close(self) -> None:
        """Kill it and all it started; idempotent."""
        if self._closed:
            return
        self._closed = True
        os.close(self._life)
        select.select([self._pidfd], [], [], 5.0)  # the keeper ends after its worker is dead
        for descriptor in (self._go, self._pidfd):
            os.close(descriptor)
        shutil.rmtree(self.job.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class _Shared:
    """A sealed, anonymous piece of memory."""

    descriptor: int
    memory: mmap.mmap

    @classmethod
    def make(cls, name: str, num_bytes: int) -> _Shared:
        descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, num_bytes)
        # a worker must not cut the judge's mapping short: the judge would die of SIGBUS
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return cls(descriptor, mmap.mmap(descriptor, num_bytes))


class Zygote:
    """The warmed-up process that forks workers; start one for each judge."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="cudal1-")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = ours
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cudal1.harness.worker.zygote", str(theirs.fileno())],
                env=_clean_environment(),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                start_new_session=True,
            )
        self._channel.settimeout(START_LIMIT_S)
        if not self._receive():
            raise self._broken("did not start")

    def start(self, job: Job, *, before_fork: Callable[[memoryview], None]) -> Worker:
        """Fork a worker for `job`, whose folder is made here.

        `before_fork` may write into the ring what the worker is to find there.

        Raises:
            WorkerError: the zygote itself is gone.
        """
        folder = tempfile.mkdtemp(dir=self._folder)
        job = replace(job, folder=folder)
        control = _Shared.make("control", wire.CONTROL_BYTES)
        ring = _Shared.make("ring", job.layout.total_bytes)
        before_fork(memoryview(ring.memory))
        go = os.eventfd(0, os.EFD_CLOEXEC)
        encoded = job.encode()
        content = os.memfd_create("job", os.MFD_CLOEXEC)
        os.write(content, encoded)
        theirs, life = os.pipe2(os.O_CLOEXEC)
        sent = array.array("i", [control.descriptor, ring.descriptor, go, content, theirs])
        try:
            self._channel.sendmsg(
                [b"fork"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent.tobytes())]
            )
            reply = self._receive()
        except OSError as error:
            raise self._broken("cannot be reached") from error
        finally:
            for descriptor in (control.descriptor, ring.descriptor, content, theirs):
                os.close(descriptor)
        if not reply:
            raise self._broken("went away")
        return Worker(job, control.memory, ring.memory, go, os.pidfd_open(reply), life)

    def close(self) -> None:
        """End the zygote; its workers end with their own handles."""
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _receive(self) -> int:
        try:
            return int.from_bytes(self._channel.recv(8), "little")
        except (TimeoutError, ConnectionError):
            return 0

    def _broken(self, what: str) -> WorkerError:
        self._process.kill()
        said = b"" if self._process.stderr is None else self._process.stderr.read()[-500:]
        line = " ".join(said.decode("utf-8", "replace").split())
        return WorkerError(f"the process that starts workers {what}; it said: {line or 'nothing'}")


def _clean_environment() -> dict[str, str]:
    """Nothing of ours but where our own package lies; no key, no proxy, no token."""
    package_root = str(Path(__file__).resolve().parents[2])
    return {
        "PYTHONPATH": package_root,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
