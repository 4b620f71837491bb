"""A process that has imported torch once and forks fresh workers, each to be used for one job.

It runs no candidate code, holds no seed, answer or secret, and knows no clock that matters; it was
started with an empty environment. A fork costs milliseconds where a new interpreter with torch
costs seconds. It forks before torch has started a thread or a CUDA context.

Protocol with the judge, over one socket: each request carries two descriptors, the worker's end of
its own channel (on which it greets, is given its job, and is told to go) and of `life`. A keeper
process holds the worker's namespaces and the only copy of `life`'s end: it ends when the judge
closes its end, and the judge reads the end of the file when the keeper and its worker are gone.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import os
import select
import signal
import socket
import sys

from cudal1.harness.worker import confinement, shim

NUM_DESCRIPTORS = 2
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def serve(channel: socket.socket, device: str) -> None:
    """Fork a worker for each request until the judge goes away."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # keepers are reaped by the kernel
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, ancillary, _, _ = channel.recvmsg(16, socket.CMSG_SPACE(NUM_DESCRIPTORS * 4))
        if not message:
            return
        descriptors = array.array("i")
        for _, _, payload in ancillary:
            descriptors.frombytes(payload[: len(payload) - len(payload) % 4])
        if os.fork() == 0:
            channel.close()
            worker_channel, life = descriptors
            _keep(worker_channel, life, device)
        for descriptor in descriptors:
            os.close(descriptor)


def _keep(worker_channel: int, life: int, device: str) -> None:
    """Become the keeper: make namespaces, fork the worker into them, end with it. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    layers = {"fork", "empty_environment"} | confinement.unshare()
    worker = os.fork()
    if worker == 0:
        os.close(life)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        shim.serve(worker_channel, layers, device)
        os._exit(0)
    os.close(worker_channel)
    pidfd = os.pidfd_open(worker)
    select.select([life, pidfd], [], [])  # the judge hung up, or the worker ended
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)  # process 1 of its namespace: takes all others along
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    os._exit(0)


def main() -> None:
    """Import torch without starting its threads, then serve.

    argv: a socket, the judge's folder, the device class.
    """
    channel = socket.socket(fileno=int(sys.argv[1]))
    shim.warm_up()
    channel.send(b"ready")
    serve(channel, sys.argv[3])
    # the judge removes this folder; one that was killed could not
    os.execv("/bin/rm", ["rm", "-rf", "--", sys.argv[2]])


if __name__ == "__main__":
    main()
