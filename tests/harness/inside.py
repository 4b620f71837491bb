"""Start real workers that run a test's own lines of attack as their candidate."""

from __future__ import annotations

import os
import re
import textwrap
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import torch

from cudal1.harness.device.device import find_device
from cudal1.harness.exchange.burst import BurstRunner
from cudal1.harness.sandbox.sandbox import Worker
from cudal1.harness.sandbox.zygote import Zygote
from cudal1.harness.shared.wire import Job, Layout, TensorSpec, View
from cudal1.problem import DeviceClass

ROOT = Path(__file__).parents[2]
COUNTS = TensorSpec("int64", (64,))
LAYOUT = Layout((), (COUNTS,), (COUNTS,), 1, (View(0, "int64", (64,), (1,), 0),))
MEMORY_BYTES = 1 << 30
LIMIT_S = 120

TOP = """
import ctypes, mmap, os, signal, subprocess, sys, threading, time
import torch

frame = sys._getframe()
while "ring" not in frame.f_locals:
    frame = frame.f_back
counts = frame.f_locals["ring"][:512].view(torch.int64)  # the judge reads them
libc = ctypes.CDLL(None, use_errno=True)

def burn(which):
    memory = counts.numpy()
    while True:
        memory[which] += 1

def readable(path):
    try:
        return bool(os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
    except OSError:
        return False

class ModelNew(torch.nn.Module):
    pass
"""

Start = Callable[[str], Worker]
Told = Callable[[str], str]


def open_zygote() -> Zygote:
    return Zygote(find_device(DeviceClass.CPU), minimum=())


def start_worker(zygote: Zygote, body: str) -> Worker:
    """Start a worker that runs `body` when it imports its candidate."""
    job = Job(
        entry="ModelNew",
        init_inputs="[]",
        weight_names=(),
        layout=LAYOUT,
        seed=0,
        memory_bytes=MEMORY_BYTES,
        cpu_s=60,
        core=find_device(DeviceClass.CPU).worker_core,
        folder="",
        device="cpu",
        ring_bytes=LAYOUT.total_bytes,
        allow_tf32=False,
    )
    ring = BurstRunner(LAYOUT, torch.device("cpu")).make_ring([])
    return zygote.start(job, ring, TOP + textwrap.dedent(body))


def counts(worker: Worker) -> list[int]:
    """Return the counters that a worker keeps in memory that the judge sees."""
    return worker.ring.memory[:512].view(torch.int64).tolist()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def descendants(process: int) -> set[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                parents[int(entry.name)] = int(fields[1])
    found = {process}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {process}


def in_namespaces() -> set[int]:
    """Return our descendants in other namespaces, without the first process of each namespace."""
    found: set[int] = set()
    for process in descendants(os.getpid()):
        with suppress(OSError):
            line = re.search(r"NSpid:\t(.*)", Path(f"/proc/{process}/status").read_text())
            if line and len(line[1].split()) > 1 and line[1].split()[-1] != "1":
                found.add(process)
    return found


BURNERS = {
    "is_busy_itself": "burn(0)",
    "has_a_busy_thread": "threading.Thread(target=burn, args=(0,)).start()",
    "has_a_busy_child": "if os.fork() == 0: burn(0)",
    "has_a_busy_grandchild_in_a_session_of_its_own": """
        # the kernel sends it SIGHUP and SIGCONT when its parent ends while it is stopped
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setpgid(0, 0)
                burn(0)
            os._exit(0)
        os.wait()
    """,
    "forks_without_end": """
        memory = counts.numpy()
        if os.fork() == 0:
            while True:
                memory[0] += 1
                if os.fork():
                    os._exit(0)
    """,
    "has_children_that_wake_each_other": """
        if os.fork() == 0:
            others = [os.getpid()]
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    break
                others.append(child)
            memory = counts.numpy()
            while True:
                memory[0] += 1
                for other in others:
                    os.kill(other, signal.SIGCONT)
    """,
    "has_a_thread_whose_first_one_has_ended": """
        threading.Thread(target=burn, args=(0,)).start()
        libc.pthread_exit(None)
    """,
    "ignores_whatever_can_be_ignored": """
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_IGN)
        burn(0)
    """,
}
"""Bodies that keep a worker busy, by name."""
