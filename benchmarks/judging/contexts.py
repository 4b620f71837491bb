"""Time the driver when it makes what a worker has on a GPU, and when it ends it.

python -m benchmarks.judging.contexts [--rounds 10] [--out DIR]

A worker's context is made and ended again and again: on one GPU, and on all GPUs at once. Another
process holds a context on each of them meanwhile, as a judge does. The columns are:

* `nodes`: whether a worker finds all GPUs in /dev or its own alone, as workers do;
* `queues`: CUDA_DEVICE_MAX_CONNECTIONS, for copies CUDA_DEVICE_MAX_COPY_CONNECTIONS;
* `product`: whether it computes a matrix product, for which libraries are loaded;
* `GiB`: memory of the judge that it maps.

*made* and *mapped* are the worker's own time. *ended* lasts from its kill until no process holds
what it held. All are medians of all rounds. Run it as root, for namespaces.
"""

from __future__ import annotations

import argparse
import array
import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any, NoReturn

from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, machine, note, print_table
from cudal1.harness.device.device import Device
from cudal1.harness.sandbox.launch import CONNECTIONS
from cudal1.harness.shared import places
from cudal1.harness.shared.vmm import DeviceMemory, cuda_driver
from cudal1.harness.worker import confinement
from cudal1.problem import DeviceClass

FIND = """
from cudal1.harness.device.device import find_devices
from cudal1.problem import DeviceClass
for device in find_devices(DeviceClass.CUDA):
    print(device.model_dump_json())
"""
HOLD = """
import os, socket, sys
from cudal1.harness.sandbox.idle_worker import send_with
from cudal1.harness.shared.vmm import DeviceMemory
import torch
torch.ones(1, device="cuda")
channel = socket.socket(fileno=int(sys.argv[1]))
for asked in iter(lambda: channel.recv(32), b""):
    memory = DeviceMemory.make(int(asked))
    descriptor = memory.descriptor()
    send_with(channel, str(memory.num_bytes).encode(), [descriptor])
    os.close(descriptor)
    channel.recv(32)
    memory.close()
"""
"""Code of a process that holds a context, and makes memory of each size that it is asked for."""


@dataclass(frozen=True)
class Case:
    """The context to make, and its GPUs."""

    all_gpus: bool
    own_node: bool = True
    queues: str = CONNECTIONS
    copies: str = ""
    """Number of copy queues; if empty, the driver takes as many as `queues`."""
    product: bool = True
    gib: int = 0


PR_SET_PDEATHSIG = 1
CASES = (
    Case(False, own_node=False),
    Case(True, own_node=False),
    Case(False),
    Case(True),
    Case(True, queues="1"),
    Case(True, copies="1"),
    Case(True, product=False),
    Case(False, gib=1),
    Case(True, gib=1),
    Case(False, gib=8),
    Case(True, gib=8),
    Case(True, own_node=False),
    Case(True),
)
"""All cases, some of them twice, since machines drift."""


def main() -> None:
    """Measure, print a table, and write results/contexts_cuda.json."""
    parser = Parser(
        prog="python -m benchmarks.judging.contexts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    # in other processes, since a process that has begun with CUDA cannot be forked
    found = subprocess.run(
        [sys.executable, "-c", FIND], check=False, capture_output=True, text=True
    )
    if found.returncode:
        sys.exit(found.stderr.strip().rpartition("\n")[2])
    gpus = [Device.model_validate_json(line) for line in found.stdout.splitlines()]
    _import_all()
    rows: list[dict[str, Any]] = []
    with contextlib.ExitStack() as holding:
        holders = [holding.enter_context(_holder(gpu)) for gpu in gpus]
        for case in CASES:
            if case.all_gpus and len(gpus) == 1:
                continue
            taken = list(zip(gpus, holders, strict=True))[: None if case.all_gpus else 1]
            rows.append(asdict(case) | {"rounds": _measured(case, taken, given.rounds)})
            note(" ".join(_line(rows[-1], len(gpus))))
            _save(given.out, gpus, rows)
    print_table(
        [
            "GPUs",
            "nodes",
            "queues",
            "copies",
            "product",
            "GiB",
            "made ms",
            "mapped ms",
            "ended ms",
            "in /dev",
        ],
        [_line(row, len(gpus)) for row in rows],
    )


def _import_all() -> None:
    """Import what workers inherit: PyTorch, and NVIDIA's bindings of the driver."""
    importlib.import_module("torch")
    cuda_driver()


def _save(folder: Path, gpus: Sequence[Device], rows: Sequence[dict[str, Any]]) -> None:
    """Save all cases so far."""
    found = {
        "benchmark": "contexts_cuda",
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine(gpus[0]),
        "num_gpus": len(gpus),
        "cases": rows,
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1) + "\n"
    (folder / "contexts_cuda.json").write_text(text, encoding="utf-8")


def _line(row: dict[str, Any], num_gpus: int) -> list[str]:
    of = {name: [one[name] for one in row["rounds"]] for name in row["rounds"][0]}
    return [
        str(num_gpus if row["all_gpus"] else 1),
        "own" if row["own_node"] else "all",
        row["queues"],
        row["copies"] or "-",
        "yes" if row["product"] else "no",
        str(row["gib"]),
        *(f"{1000 * median(of[name]):.0f}" for name in ("made_s", "mapped_s", "ended_s")),
        str(max(of["num_nodes"])),
    ]


def _measured(
    case: Case, taken: Sequence[tuple[Device, socket.socket]], rounds: int
) -> list[dict[str, float]]:
    """Run rounds on all GPUs at once, each in its own process, since forking stops a process."""
    forking = multiprocessing.get_context("fork")
    loops: list[tuple[Connection, Any]] = []
    for gpu, holder in taken:
        ours, theirs = forking.Pipe(duplex=False)
        process = forking.Process(target=_loop, args=(case, gpu, holder, rounds, theirs))
        process.start()
        theirs.close()
        loops.append((ours, process))
    found: list[dict[str, float]] = []
    for ours, process in loops:
        with contextlib.suppress(EOFError):
            found += ours.recv()
        process.join()
    if len(found) < rounds * len(taken):
        sys.exit(f"{case}: a worker failed; its words are above")
    return found


def _loop(case: Case, gpu: Device, holder: socket.socket, rounds: int, told: Connection) -> None:
    _end_with_parent()
    with _memory(holder, case.gib << 30) as memory:
        told.send([_round(case, gpu, memory) for _ in range(rounds)])


@contextlib.contextmanager
def _holder(gpu: Device) -> Iterator[socket.socket]:
    """Start a process with a context on the GPU, which makes memory on request."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-c", HOLD, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu.id},
            )
        with _memory(ours, 1 << 21):  # its answer shows that its context exists
            pass
        yield ours
    process.wait()


@contextlib.contextmanager
def _memory(holder: socket.socket, num_bytes: int) -> Iterator[tuple[int, int] | None]:
    """Yield a descriptor of memory of the device, and its size; None for size 0."""
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
        holder.send(b"done")


def _round(case: Case, gpu: Device, memory: tuple[int, int] | None) -> dict[str, float]:
    """Make one context and end it."""
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        _work(case, gpu, memory, writing)
    os.close(writing)
    with open(reading, "rb", buffering=0) as told:
        made = told.readline()
        if not made:
            raise SystemExit(f"{gpu.id}: no context")
        started = time.monotonic()
        os.killpg(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        told.read()  # ends when the last process of its group has ended
        return json.loads(made) | {"ended_s": time.monotonic() - started}


def _work(case: Case, gpu: Device, memory: tuple[int, int] | None, told: int) -> NoReturn:
    try:
        _make(case, gpu, memory, told)
    except BaseException:  # noqa: BLE001  a fork must not run on in its parent's loop
        traceback.print_exc()
    finally:
        os._exit(1)


def _make(case: Case, gpu: Device, memory: tuple[int, int] | None, told: int) -> None:
    import torch

    os.setsid()
    _end_with_parent()
    os.environ |= {"CUDA_VISIBLE_DEVICES": gpu.id, "CUDA_DEVICE_MAX_CONNECTIONS": case.queues}
    if case.copies:
        os.environ["CUDA_DEVICE_MAX_COPY_CONNECTIONS"] = case.copies
    layers = confinement.unshare()
    if os.fork():  # the first process of the namespaces is the worker
        os.wait()
        return
    _end_with_parent()
    node = gpu.node if case.own_node else None
    layers |= confinement.own_mounts(layers, places.devices(DeviceClass.CUDA, node))
    if "own_devices" not in layers:
        raise SystemExit("no namespaces: run as root")
    started = time.monotonic()
    ones = torch.ones(64, 64, device="cuda")
    if case.product:
        torch.mm(ones, ones)
    torch.cuda.synchronize()
    made_s, started = time.monotonic() - started, time.monotonic()
    if memory is not None:
        DeviceMemory.received(os.dup(memory[0]), memory[1])
        torch.cuda.synchronize()
    found = {
        "made_s": made_s,
        "mapped_s": time.monotonic() - started,
        "num_nodes": len(list(places.DEV.glob("nvidia[0-9]*"))),
    }
    os.write(told, json.dumps(found).encode() + b"\n")
    signal.pause()


def _end_with_parent() -> None:
    confinement.libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
