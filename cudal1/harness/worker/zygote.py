"""Import torch once and fork fresh workers, each to be used for one job.

The zygote runs no candidate code. It holds no seed, answer or secret, and knows no clock that
matters. It was started with an empty environment. A fork costs milliseconds where a new interpreter
with torch costs seconds. The zygote forks before torch has started a thread or a CUDA context.

The zygote speaks with the judge over its standard input, a socket. It says which layers namespaces
will give a worker, and when it has imported torch. Then each request carries descriptors:

- the worker's end of its own channel, on which it is given its job, greets, and is told to go
- the warden's end of the leash
- the keeper's end of `life`
- files of control groups; writing 0 to one puts the writing process into the group

A keeper makes the namespaces and has the only copy of `life`'s end. The keeper ends when the judge
closes the other end. The judge reads the end of the file when the warden, the worker and all other
processes are gone.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import gc
import os
import select
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from cudal1.harness.shared import wire
from cudal1.harness.shared.vmm import cuda_driver
from cudal1.harness.worker import confinement
from cudal1.harness.worker.warden import Warden

MAX_DESCRIPTORS = 8
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def serve(channel: socket.socket, layers: set[str], device: str, nodes: list[str]) -> None:
    """Fork a worker for each request until the judge goes away."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, ancillary, _, _ = channel.recvmsg(16, socket.CMSG_SPACE(MAX_DESCRIPTORS * 4))
        if not message:
            return
        descriptors = array.array("i")
        for _, _, payload in ancillary:
            descriptors.frombytes(payload[: len(payload) - len(payload) % 4])
        if os.fork() == 0:
            _never_returning(_keep, channel, layers, device, nodes, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(
    channel: socket.socket,
    layers: set[str],
    device: str,
    nodes: list[str],
    worker_channel: int,
    leash: int,
    life: int,
    *groups: int,
) -> None:
    """Become the keeper: make namespaces, start a worker in them, and end with it."""
    channel.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    layers = layers | _joined(groups) | confinement.unshare()
    if "own_pids" not in layers:
        worker = _fork_worker(worker_channel, layers, device, nodes, leash, life)
        confinement.set_readable(False)
        try:
            Warden(worker, in_namespace=False).guard(leash, life)
        finally:
            _kill(worker)
        return
    warden = os.fork()
    if warden == 0:
        os.close(life)
        _never_returning(_be_warden, worker_channel, layers, device, nodes, leash)
    os.close(worker_channel)
    os.close(leash)
    confinement.set_readable(False)
    select.select([life, os.pidfd_open(warden)], [], [])  # the judge hung up, or the warden ended
    _kill(warden)  # process 1 of its namespace: takes all others along


def _be_warden(
    worker_channel: int, layers: set[str], device: str, nodes: list[str], leash: int
) -> None:
    """Fork the worker and guard it as process 1 of the namespace; all end with this process."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    confinement.set_readable(False)
    worker = _fork_worker(worker_channel, layers, device, nodes, leash)
    confinement.drop_capabilities()
    warden = Warden(worker, in_namespace=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the namespace become its own
    warden.guard(leash)


def _fork_worker(
    worker_channel: int, layers: set[str], device: str, nodes: list[str], *not_its_own: int
) -> int:
    """Start the worker, which waits for its job; return its number."""
    worker = os.fork()
    if worker == 0:
        for descriptor in not_its_own:
            os.close(descriptor)
        confinement.set_readable(True)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        from cudal1.harness.worker import shim

        _never_returning(shim.serve, worker_channel, layers, device, nodes)
    os.close(worker_channel)
    return worker


def _joined(groups: Sequence[int]) -> set[str]:
    """Enter the control groups, given by their files of members; return the layers that hold."""
    try:
        for group in groups:
            os.write(group, b"0")
            os.close(group)
    except OSError:
        return set()
    return {"cgroup"} if groups else set()


def _kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    os.waitpid(process, 0)


def _never_returning(function: Callable[..., object], *arguments: object) -> NoReturn:
    """Run a function in a forked process, and end the process.

    A forked process must not run on in its parent's loop, not even after an error.
    """
    try:
        function(*arguments)
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()  # the judge quotes it when a worker does not start
        os._exit(0)


def _of_namespaces() -> set[str]:
    """Return the layers that namespaces give here, which a child tries."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        _never_returning(lambda: os.write(writing, " ".join(confinement.unshare()).encode()))
    os.close(writing)
    with open(reading) as told:
        return set(told.read().split())


def main() -> None:
    """Import torch without starting its threads, then serve.

    argv: the device class, whether to import compilers (1 or 0), names in /dev that its workers may
    use, and layers that hold already.
    """
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    device, compilers, nodes, *layers = sys.argv[1:]
    channel.send(wire.bits_of(_of_namespaces()))
    _warm_up(device, compilers=compilers == "1")
    channel.send(wire.UP)
    serve(channel, {"fork", "empty_environment", *layers}, device, nodes.split(","))


def _warm_up(device: str, *, compilers: bool) -> None:
    """Import what every worker needs; the judge reads the first message meanwhile.

    The imports take seconds, those of compilers five more.
    """
    gc.disable()  # imports make a million objects, and hardly any garbage
    from cudal1.harness.worker import builds, shim

    shim.warm_up()
    builds.warm_up()
    if device == "cuda":
        with contextlib.suppress(ImportError):  # a worker that needs it says so
            cuda_driver()
        if compilers:
            _warm_up_compilers()
    gc.freeze()  # no worker ever looks for garbage in what all workers share
    gc.enable()


def _warm_up_compilers() -> None:
    from cudal1.harness.worker import inductor

    inductor.warm_up()
    # no Triton, an unknown one, or a driver that it cannot use
    with contextlib.suppress(ImportError, AttributeError, OSError, RuntimeError):
        from cudal1.harness.worker import compilers

        compilers.warm_up()


if __name__ == "__main__":
    main()
