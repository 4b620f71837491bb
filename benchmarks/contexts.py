"""How long the driver takes to make what a worker has on a GPU, and to end it.

python -m benchmarks.contexts [--rounds 10] [--out DIR]

A worker's context is made and ended again and again: on one GPU, and on all of them at once, while
another process holds a context on each, as a judge does. `nodes`: whether a worker finds all GPUs
in /dev or its own alone, as workers do. `queues`: CUDA_DEVICE_MAX_CONNECTIONS, for copies
CUDA_DEVICE_MAX_COPY_CONNECTIONS. `product`: whether it computes a matrix product, for which
libraries are made ready. `GiB`: of the judge's memory that it maps. *made* and *mapped* are the
worker's own time, *ended* lasts from its kill until nobody holds what it held; medians of all
rounds. As root, for namespaces.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.common import chosen, note, options, print_table, save
from cudal1.harness import places
from cudal1.harness.device import Device
from cudal1.harness.launch import CONNECTIONS
from cudal1.harness.worker import confinement
from cudal1.problem import DeviceClass

FIND = """
from cudal1.harness.device import find_devices
from cudal1.problem import DeviceClass
for device in find_devices(DeviceClass.CUDA):
    print(device.model_dump_json())
"""
HOLD = """
import socket, sys
from cudal1.harness.spare import send_with
from cudal1.harness.vmm import DeviceMemory
import torch
torch.ones(1, device="cuda")
channel = socket.socket(fileno=int(sys.argv[1]))
for asked in iter(lambda: channel.recv(32), b""):
    memory = DeviceMemory.make(int(asked))
    send_with(channel, str(memory.num_bytes).encode(), [memory.descriptor()])
"""
"""Holds a context, and makes memory of the asked sizes until nobody asks any more."""


@dataclass(frozen=True)
class Case:
    """What is made, and where."""

    all_gpus: bool
    own_node: bool = True
    queues: str = CONNECTIONS
    copies: str = ""
    """As many as the driver takes for these, unless they are said."""
    product: bool = True
    gib: int = 0


CASES = (
    Case(False, own_node=False), Case(True, own_node=False), Case(False), Case(True),
    Case(True, queues="1"), Case(True, copies="1"), Case(True, product=False),
    Case(False, gib=1), Case(True, gib=1), Case(False, gib=8), Case(True, gib=8),
    Case(True, own_node=False), Case(True),
)  # fmt: skip
"""Some twice: machines drift."""


def main() -> None:
    """Measure, print a table, leave results/contexts_cuda.json."""
    parser = options("contexts", __doc__)
    parser.set_defaults(device="cuda")
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    # in other processes: what was begun with CUDA cannot be forked
    found = subprocess.run(
        [sys.executable, "-c", FIND], check=False, capture_output=True, text=True
    )
    if found.returncode:
        sys.exit(found.stderr.strip().splitlines()[-1])
    gpus = [Device.model_validate_json(line) for line in found.stdout.splitlines()]
    import torch  # noqa: F401  workers inherit it

    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as holding:
        holders = [holding.enter_context(_holder(gpu)) for gpu in gpus]
        for case in CASES:
            if case.all_gpus and len(gpus) == 1:
                continue
            taken = list(zip(gpus, holders, strict=True))[: None if case.all_gpus else 1]
            rows.append(asdict(case) | {"rounds": _measured(case, taken, given.rounds)})
            note(json.dumps(asdict(case)))
    print_table(
        ["GPUs", "nodes", "queues", "copies", "product", "GiB", "made ms", "mapped ms", "ended ms",
         "in /dev"],
        [_line(row, len(gpus)) for row in rows],
    )  # fmt: skip
    device, protocol = chosen(given)
    save("contexts_cuda", given.out, device, protocol, num_gpus=len(gpus), cases=rows)


def _line(row: dict[str, Any], num_gpus: int) -> list[str]:
    of = {name: [one[name] for one in row["rounds"]] for name in row["rounds"][0]}
    return [
        str(num_gpus if row["all_gpus"] else 1), "own" if row["own_node"] else "all",
        row["queues"], row["copies"] or "-", "yes" if row["product"] else "no", str(row["gib"]),
        *(f"{1000 * median(of[name]):.0f}" for name in ("made_s", "mapped_s", "ended_s")),
        str(max(of["num_nodes"])),
    ]  # fmt: skip


def _measured(
    case: Case, taken: Sequence[tuple[Device, socket.socket]], rounds: int
) -> list[dict[str, float]]:
    """Rounds on all of these at once."""
    found: list[dict[str, float]] = []

    def loop(gpu: Device, holder: socket.socket) -> None:
        with _memory(holder, case.gib << 30) as memory:
            found.extend(_round(case, gpu, memory) for _ in range(rounds))

    threads = [threading.Thread(target=loop, args=each) for each in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(found) < rounds * len(taken):
        sys.exit("a worker made no context; its own words are above")
    return found


@contextlib.contextmanager
def _holder(gpu: Device) -> Iterator[socket.socket]:
    """A process with a context on it, and memory for those who ask."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD, str(theirs.fileno())], pass_fds=[theirs.fileno()],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu.id},
            )  # fmt: skip
        with _memory(ours, 1 << 21):  # its context is there
            pass
        yield ours
    process.wait()


@contextlib.contextmanager
def _memory(holder: socket.socket, num_bytes: int) -> Iterator[tuple[int, int] | None]:
    """A descriptor of memory of the device, and its size; None for none."""
    if not num_bytes:
        yield None
        return
    holder.send(str(num_bytes).encode())
    said, ancillary, _, _ = holder.recvmsg(32, socket.CMSG_SPACE(4))
    (descriptor,) = array.array("i", ancillary[0][2][:4])
    try:
        yield descriptor, int(said)
    finally:
        os.close(descriptor)


def _round(case: Case, gpu: Device, memory: tuple[int, int] | None) -> dict[str, float]:
    """Make one and end it."""
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        try:
            _work(case, gpu, memory, writing)
        finally:
            os._exit(1)
    os.close(writing)
    with open(reading, "rb", buffering=0) as told:
        made = json.loads(told.readline())
        started = time.monotonic()
        os.killpg(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        told.read()  # ends when the last one of its group is gone
        return made | {"ended_s": time.monotonic() - started}


def _work(case: Case, gpu: Device, memory: tuple[int, int] | None, told: int) -> None:
    import torch

    os.setsid()
    os.environ |= {"CUDA_VISIBLE_DEVICES": gpu.id, "CUDA_DEVICE_MAX_CONNECTIONS": case.queues}
    if case.copies:
        os.environ["CUDA_DEVICE_MAX_COPY_CONNECTIONS"] = case.copies
    layers = confinement.unshare()
    if os.fork():  # the first process of the namespaces is the worker
        os.wait()
        return
    layers |= confinement.own_proc(layers)
    node = gpu.node if case.own_node else None
    layers |= confinement.own_devices(layers, places.devices(DeviceClass.CUDA, node))
    if "own_devices" not in layers:
        raise SystemExit("no namespaces: run as root")
    started = time.monotonic()
    ones = torch.ones(64, 64, device="cuda")
    if case.product:
        torch.mm(ones, ones)
    torch.cuda.synchronize()
    made_s, started = time.monotonic() - started, time.monotonic()
    if memory is not None:
        from cudal1.harness.vmm import DeviceMemory

        DeviceMemory.received(os.dup(memory[0]), memory[1])
        torch.cuda.synchronize()
    found = {
        "made_s": made_s, "mapped_s": time.monotonic() - started,
        "num_nodes": len(list(places.DEV.glob("nvidia[0-9]*"))),
    }  # fmt: skip
    os.write(told, json.dumps(found).encode() + b"\n")
    signal.pause()


if __name__ == "__main__":
    main()
