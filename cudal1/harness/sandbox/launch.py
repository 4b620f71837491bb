"""Start the process that forks workers: with an empty environment, inside bubblewrap if possible.

Threat: what is inherited. A process can read its parent's environment, so the launcher's
environment is empty, too. A judge that is killed removes nothing, so a shell removes the folder.
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
from cudal1.harness.device.device import Device
from cudal1.harness.sandbox import bubblewrap
from cudal1.harness.shared import places, wire
from cudal1.problem import DeviceClass

START_LIMIT_S = 120.0
"""Seconds for a new interpreter to import torch, or for a fork to happen, on a busy machine."""
CONNECTIONS = "2"
"""Hardware queues of a process on a GPU. With a driver's own 8 it takes 97 ms to make a context and
60 ms to end it. With 2 it takes 47 and 40 ms (H200, driver 580). No other process can make a
context meanwhile."""
JANITOR = 'exec 3<&0 </dev/null; "$@" <&3 3<&- & exec 3<&-; wait $!; exec rm -rf -- "$0"'
"""Shell command: run a command with a socket as its standard input, then remove a folder."""


def launch(device: Device, *, compilers: bool = False) -> Source:
    """Start the process, inside bubblewrap unless a worker has weaker layers there than outside.

    With `compilers` it imports first what compilers inside a worker need on a GPU, which takes
    seconds. Threat: it must import them before it has forked a worker, which might write to its
    folder.

    Raises:
        WorkerError: the process does not start.
    """
    source = Source(device, wrapped=True, compilers=compilers)
    if source.is_wrapped and not ("own_pids" in source.layers and source.is_up()):
        # inside, namespaces may be refused that are granted outside and that keep out more
        bare = Source(device, wrapped=False, compilers=compilers)
        if "own_pids" in bare.layers or not source.is_up():
            source, bare = bare, source
        bare.kill()
    if not source.is_up():
        error = source.broken("did not start")
        source.close()
        raise error
    return source


class Source:
    """The zygote's process and our end of its channel; inside bubblewrap where that is wanted.

    A shell starts the zygote, waits for its end, and then removes the folder: a killed judge could
    not remove it.
    """

    def __init__(self, device: Device, *, wrapped: bool, compilers: bool) -> None:
        self.folder = tempfile.mkdtemp(prefix="cudal1-")
        Path(self.folder).chmod(0o711)
        nodes = places.devices(device.device_class, device.node)
        wrapper = bubblewrap.prefix(self.folder, nodes) if wrapped else []
        self.is_wrapped = bool(wrapper)
        self.channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [*wrapper, *processes.python("cudal1.harness.worker.zygote")]
        command += [device.device_class, str(int(compilers)), ",".join(nodes)]
        command += ["bubblewrap"] * self.is_wrapped
        # workers that get ready must not disturb the worker that is timed: off its core until
        # needed
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
        self.layers = wire.layers_of(greeting)
        """Layers that namespaces give its workers. They are known at once, so that a second source
        need not wait for PyTorch."""
        self._is_up = None if greeting else False

    def is_up(self) -> bool:
        """Wait until the zygote has imported torch; return whether it has."""
        if self._is_up is None:
            self._is_up = received(self.channel) == wire.UP
        return self._is_up

    @property
    def process_id(self) -> int:
        """The id of the shell's process."""
        return self._process.pid

    def is_running(self) -> bool:
        """Return whether the source's process is there."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process, and remove its folder."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._process.kill()
        self._process.wait()
        if self._process.stderr is not None:
            self._process.stderr.close()
        remove(self.folder)

    def kill(self) -> None:
        """Kill the process at once, and remove its folder."""
        self._end_all()
        self.close()

    def _end_all(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def broken(self, what: str) -> WorkerError:
        """End the process; return the error that names its failure, with its last words."""
        self.channel.close()
        self._end_all()  # a process that hangs holds `stderr` open
        said = b"" if self._process.stderr is None else self._process.stderr.read()[-500:]
        line = " ".join(said.decode("utf-8", "replace").split())
        return WorkerError(f"the process that starts workers {what}; it said: {line or 'nothing'}")


class Lent:
    """Another process's source, as a process that it has forked may use it without ending it.

    Each message to a source is one request, so that several processes may send.
    """

    def __init__(self, source: Source) -> None:
        self.folder = source.folder
        self.channel = source.channel
        self.layers = source.layers
        self._process = os.pidfd_open(source.process_id)

    def is_running(self) -> bool:
        """Return whether the source's process is there."""
        return not select.select([self._process], [], [], 0)[0]

    def close(self) -> None:
        """Close this handle on the source's process."""
        os.close(self._process)

    def broken(self, what: str) -> WorkerError:
        """Return the error that says what became of the source; its owner ends it."""
        state = "runs" if self.is_running() else "has ended"
        return WorkerError(f"the process that starts workers {what}; it {state}")


Start = Callable[[Device], Source | Lent]
"""Function that starts the process that forks a device's workers, as `launch` does."""


@contextlib.contextmanager
def _elsewhere(reserved: Sequence[int]) -> Iterator[None]:
    """Keep off some cores, where there are others; processes started meanwhile do so, too."""
    cores = os.sched_getaffinity(0)
    if others := cores.difference(reserved):
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def received(channel: socket.socket) -> bytes:
    """Return the next message; empty when the other side is gone or silent."""
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
    """Return an environment without any of our variables: no key, no proxy, no token."""
    environment = {
        **processes.SET,
        "PATH": places.PATH,
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        # PyTorch's names for the compilers of extensions, and the interpreter that runs these
        # scripts
        "CXX": str(places.EXTENSIONS / "g++"),
        "PYTORCH_NVCC": shlex.quote(str(places.EXTENSIONS / "nvcc")),  # CXX it quotes itself
        "CUDAL1_PYTHON": str(Path(sys.executable).absolute()),
    }
    if device.device_class is DeviceClass.CUDA:
        environment["CUDA_VISIBLE_DEVICES"] = device.id
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = CONNECTIONS
    if device.arch:  # PyTorch would ask the device, which a builder has not
        environment["TORCH_CUDA_ARCH_LIST"] = device.arch
    return environment
