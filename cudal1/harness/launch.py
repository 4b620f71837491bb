"""Start the process that forks workers: with an empty environment, inside bubblewrap if possible.

Threat: what is inherited. Its parent's environment can be read from inside, so that the launcher's
is empty, too; and a judge that is killed removes nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from cudal1 import processes
from cudal1.errors import WorkerError
from cudal1.harness import bubblewrap, places, wire
from cudal1.harness.device import Device
from cudal1.problem import DeviceClass

START_LIMIT_S = 120.0
"""For a new interpreter to import torch, or a fork to come about, on a busy machine."""
CONNECTIONS = "2"
"""Queues of a process on a GPU. With a driver's own 8 a context takes 97 ms to be made and 60 to be
ended, with 2 it takes 47 and 40 (H200, driver 580), and nobody else can make one meanwhile."""
JANITOR = 'exec 3<&0 </dev/null; "$@" <&3 3<&- & exec 3<&-; wait $!; exec rm -rf -- "$0"'
"""For a shell: run a command whose standard input is a socket, then remove a folder."""


def launch(device: Device) -> Source:
    """The process, inside bubblewrap unless that leaves a worker with less than it has without.

    Raises:
        WorkerError: it does not start.
    """
    source = Source(device, wrapped=True)
    if source.is_wrapped and "own_pids" not in source.layers:
        # inside, namespaces may be refused that are granted outside, and keep out more
        bare = Source(device, wrapped=False)
        if "own_pids" in bare.layers or not source.is_up:
            source, bare = bare, source
        bare.close()
    if not source.is_up:
        error = source.broken("did not start")
        source.close()
        raise error
    return source


class Source:
    """The zygote's process and our end of its channel; inside bubblewrap, where that is wanted.

    What is started is a shell that starts it, waits, and then removes the folder, which a judge
    that was killed could not.
    """

    def __init__(self, device: Device, *, wrapped: bool) -> None:
        self.folder = tempfile.mkdtemp(prefix="cudal1-")
        Path(self.folder).chmod(0o711)
        nodes = places.devices(device.device_class, device.node)
        wrapper = bubblewrap.prefix(self.folder, nodes) if wrapped else []
        self.is_wrapped = bool(wrapper)
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*wrapper, *processes.python("cudal1.harness.worker.zygote")]
        command += [device.device_class, ",".join(nodes), *["bubblewrap"] * self.is_wrapped]
        # those that get ready must not disturb the one that is timed: off its core until needed
        with theirs, _elsewhere(device.reserved_cores):
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", JANITOR, self.folder, *command],
                env=_clean_environment(device),
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                cwd=self.folder,
                start_new_session=True,
            )
        self.channel.settimeout(START_LIMIT_S)
        greeting = received(self.channel)
        self.is_up = bool(greeting)
        self.layers = wire.layers_of(greeting)

    @property
    def process_id(self) -> int:
        """The number of its process."""
        return self._process.pid

    def is_running(self) -> bool:
        """Return whether its process is there."""
        return self._process.poll() is None

    def close(self) -> None:
        """End it, and remove its folder."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        remove(self.folder)

    def broken(self, what: str) -> WorkerError:
        """It failed us; with its last words."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):  # all of them: what hangs holds `stderr`
            os.killpg(self._process.pid, signal.SIGKILL)
        said = b"" if self._process.stderr is None else self._process.stderr.read()[-500:]
        line = " ".join(said.decode("utf-8", "replace").split())
        return WorkerError(f"the process that starts workers {what}; it said: {line or 'nothing'}")


class Lent:
    """Another process's source, as a process that it has forked may use it: it is not ours to end.

    Each message to a source is one request, so that several processes may send.
    """

    def __init__(self, source: Source) -> None:
        self.folder = source.folder
        self.channel = source.channel
        self.layers = source.layers
        self._process = os.pidfd_open(source.process_id)

    def is_running(self) -> bool:
        """Return whether its process is there."""
        return not select.select([self._process], [], [], 0)[0]

    def close(self) -> None:
        """Give it back."""
        os.close(self._process)

    def broken(self, what: str) -> WorkerError:
        """Return the error that says what became of it; its owner ends it."""
        state = "runs" if self.is_running() else "has ended"
        return WorkerError(f"the process that starts workers {what}; it {state}")


Start = Callable[[Device], Source | Lent]
"""Starts what forks the workers of a device, as `launch` does."""


@contextlib.contextmanager
def _elsewhere(reserved: Sequence[int]) -> Iterator[None]:
    """Leave some cores, where there are others: what is started meanwhile keeps off them, too."""
    cores = os.sched_getaffinity(0)
    if others := cores.difference(reserved):
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def received(channel: socket.socket) -> bytes:
    """The next message; empty when the other side is gone or silent."""
    try:
        return channel.recv(wire.WORD_BYTES)
    except (TimeoutError, ConnectionError):
        return b""


def remove(folder: str) -> None:
    """Remove a folder that a candidate may have filled: nested deeper than Python could follow."""
    with contextlib.suppress(OSError):
        Path(folder).rmdir()
        return
    subprocess.run(
        ["/bin/rm", "-rf", "--", folder],
        env=processes.sparse(),
        check=False,
        stderr=subprocess.DEVNULL,
    )


def _clean_environment(device: Device) -> dict[str, str]:
    """Return nothing of ours; no key, no proxy, no token."""
    environment = {
        **processes.SET,
        "PATH": places.PATH,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        # PyTorch's names for what compiles extensions, and who runs it there
        "CXX": str(places.EXTENSIONS / "g++"),
        "PYTORCH_NVCC": shlex.quote(str(places.EXTENSIONS / "nvcc")),  # CXX it quotes itself
        "CUDAL1_PYTHON": str(Path(sys.executable).absolute()),
    }
    if device.device_class is DeviceClass.CUDA:
        environment["CUDA_VISIBLE_DEVICES"] = device.id
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = CONNECTIONS
    if device.arch:  # PyTorch would ask the device, which whoever builds ahead has not
        environment["TORCH_CUDA_ARCH_LIST"] = device.arch
    return environment
