"""A process that has imported torch once and forks one fresh worker for each job.

It runs no candidate code, holds no seed, answer or secret, and knows no clock that matters; it was
started with an empty environment. A fork costs milliseconds where a new interpreter with torch
costs seconds. It forks before torch has started a thread or a CUDA context.

Protocol with the judge, over one socket: a request carries five descriptors (control, ring, go, job and
life); the reply is the process id of the worker's keeper, eight bytes. The keeper holds the worker's
namespaces and ends when the judge closes its end of `life`.
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

from cudal1.harness import wire
from cudal1.harness.worker import shim

NUM_DESCRIPTORS = 5
CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWIPC, CLONE_NEWUSER = (
    0x20000000, 0x40000000, 0x08000000, 0x10000000,
)  # fmt: skip
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


def serve(channel: socket.socket) -> None:
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
        keeper = os.fork()
        if keeper == 0:
            channel.close()
            _keep(*descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(keeper.to_bytes(8, "little"))


def _keep(control: int, ring: int, go: int, job: int, life: int) -> None:
    """Become the keeper: make namespaces, fork the worker into them, end with it. Never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    layers = {"fork", "empty_environment"} | _unshare()
    worker = os.fork()
    if worker == 0:
        os.close(life)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        shim.run(control, ring, go, job, layers)
        os._exit(0)
    for descriptor in (control, ring, go, job):
        os.close(descriptor)
    pidfd = os.pidfd_open(worker)
    select.select([life, pidfd], [], [])  # the judge hung up, or the worker ended
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGKILL)  # process 1 of its namespace: takes all others along
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(worker, signal.SIGKILL)
    os._exit(0)


def _unshare() -> set[str]:
    """Namespaces that this kernel and user may make, one after another; the layers they give."""
    if os.geteuid() != 0 and libc.unshare(CLONE_NEWUSER) != 0:
        return set()
    wanted = {"own_pids": CLONE_NEWPID, "own_network": CLONE_NEWNET, "own_ipc": CLONE_NEWIPC}
    return {layer for layer, flag in wanted.items() if libc.unshare(flag) == 0}


def main() -> None:
    """Import torch without starting its threads, then serve on the inherited socket."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    channel = socket.socket(fileno=int(sys.argv[1]))
    shim.warm_up()
    channel.send(wire.CONTROL_BYTES.to_bytes(8, "little"))
    serve(channel)


if __name__ == "__main__":
    main()
