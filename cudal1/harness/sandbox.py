"""Start, watch and kill one worker process and everything that it started.

Threat: a worker may crash, hang, fork, fill memory, or kill what it can see. It sees its own
namespaces (where the kernel grants them), an empty environment, a private folder and its shared
memory; killing its keeper's child, process 1 of its namespace, ends all its descendants. What
stands around it is `worker.confinement`; what it could still read are files that this user may
read.
"""

from __future__ import annotations

import array
import contextlib
import mmap
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from cudal1.errors import WorkerError
from cudal1.harness import wire
from cudal1.harness.device import Device
from cudal1.harness.rings import Ring, sealed
from cudal1.harness.wire import Job, Word
from cudal1.problem import DeviceClass

START_LIMIT_S = 120.0
"""For a new interpreter to import torch, or a fork to come about, on a busy machine."""
NUM_SPARES = {DeviceClass.CPU: 2, DeviceClass.CUDA: 6}
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

    def close(self) -> None:
        """Kill it and all it started; idempotent."""
        self._spare.close()
        self.ring.release()
        _remove(self.job.folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Spare:
    """A forked worker without a job: our ends of its channel and of its life."""

    def __init__(self, zygote: socket.socket) -> None:
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._life, their_life = socket.socketpair()
        with theirs, their_life:
            _send_with(zygote, b"fork", (theirs.fileno(), their_life.fileno()))

    def is_alive(self) -> bool:
        """Whether its keeper runs: only the keeper holds the other end."""
        return self._life.fileno() >= 0 and not select.select([self._life], [], [], 0)[0]

    def close(self) -> None:
        """Have the keeper kill it, and wait until that is done; idempotent."""
        if self._life.fileno() < 0:
            return
        self.channel.close()
        self._life.shutdown(socket.SHUT_WR)
        select.select([self._life], [], [], 5.0)  # the keeper ends after its worker is dead
        self._life.close()


class Zygote:
    """The warmed-up process that forks workers; start one for each judge."""

    def __init__(self, device: Device) -> None:
        self._folder = tempfile.mkdtemp(prefix="cudal1-")
        Path(self._folder).chmod(0o711)
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "cudal1.harness.worker.zygote",
                    str(theirs.fileno()),
                    self._folder,
                    device.device_class.value,
                ],
                env=_clean_environment(device),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                start_new_session=True,
            )
        self._channel.settimeout(START_LIMIT_S)
        if not _received(self._channel):
            raise self._broken("did not start")
        self._spares: list[_Spare] = []
        self._num_spares = NUM_SPARES[device.device_class]

    def start(self, job: Job, ring: Ring) -> Worker:
        """Give `job` and `ring` to a fresh worker, whose folder is made here.

        Raises:
            WorkerError: the machinery failed before any candidate code could have run.
        """
        job = replace(job, folder=tempfile.mkdtemp(dir=self._folder))
        control_descriptor, control = sealed("control", wire.CONTROL_BYTES)
        content = os.memfd_create("job", os.MFD_CLOEXEC)
        os.write(content, job.encode())
        try:
            self._top_up(1)
            spare = self._spares.pop(0)
            _send_with(spare.channel, b"job", (control_descriptor, ring.descriptor, content))
            self._top_up(self._num_spares)
            spare.channel.settimeout(START_LIMIT_S)
            greeting = _received(spare.channel)
        except OSError as error:
            raise self._broken("cannot be reached") from error
        finally:
            for descriptor in (control_descriptor, ring.descriptor, content):
                os.close(descriptor)
        if not greeting:
            spare.close()
            raise self._broken("could not confine a new worker")
        bits = int.from_bytes(greeting, "little")
        layers = tuple(name for i, name in enumerate(wire.LAYERS) if bits >> i & 1)
        return Worker(job, spare, control, ring, layers)

    def close(self) -> None:
        """End the zygote; its workers end with their own handles."""
        for spare in self._spares:
            spare.close()
        self._channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        _remove(self._folder)

    def _top_up(self, count: int) -> None:
        while len(self._spares) < count:
            self._spares.append(_Spare(self._channel))

    def _broken(self, what: str) -> WorkerError:
        self._process.kill()
        said = b"" if self._process.stderr is None else self._process.stderr.read()[-500:]
        line = " ".join(said.decode("utf-8", "replace").split())
        return WorkerError(f"the process that starts workers {what}; it said: {line or 'nothing'}")


def _send_with(channel: socket.socket, message: bytes, descriptors: Sequence[int]) -> None:
    sent = array.array("i", descriptors)
    channel.sendmsg([message], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, sent.tobytes())])


def _received(channel: socket.socket) -> bytes:
    """The next message; empty when the other side is gone or silent."""
    try:
        return channel.recv(wire.WORD_BYTES)
    except (TimeoutError, ConnectionError):
        return b""


def _remove(folder: str) -> None:
    """Remove a folder that a candidate may have filled: nested deeper than Python could follow."""
    with contextlib.suppress(OSError):
        Path(folder).rmdir()
        return
    subprocess.run(["/bin/rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)


def _clean_environment(device: Device) -> dict[str, str]:
    """Nothing of ours but where our own package lies; no key, no proxy, no token."""
    package_root = str(Path(__file__).resolve().parents[2])
    gpu = {"CUDA_VISIBLE_DEVICES": device.id} if device.device_class is DeviceClass.CUDA else {}
    return gpu | {
        "PYTHONPATH": package_root,
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
