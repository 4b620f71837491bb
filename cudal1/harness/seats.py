"""Seats: a device, and the process that judges on it, here or on another machine (`cluster`).

A judge spins while it waits, so two of them cannot share an interpreter; and a CUDA context does
not survive a fork.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from cudal1.harness.device import Device


class MachineLost(BrokenExecutor):
    """A seat's machine is gone, and all its seats: no candidate is to blame."""


@dataclass(frozen=True)
class Seat:
    """Where one device's judge runs."""

    device: Device
    process: Executor
    """Of one process, always the same; once that is lost all that is asked of it raises
    `BrokenExecutor` or has its future do so. Asked questions are answered in their order."""
    machine: str = ""
    """Its address, unless it is this one."""

    def __str__(self) -> str:
        place = f" on {self.machine}" if self.machine else ""
        return f"{self.device.kind} {self.device.id}{place}"


@contextmanager
def seats_here(devices: Sequence[Device]) -> Iterator[list[Seat]]:
    """One for each of this machine's devices; their processes start when something is asked."""
    with ExitStack() as opening:
        yield [Seat(device, opening.enter_context(judge_process())) for device in devices]


def judge_process() -> ProcessPoolExecutor:
    """A fresh interpreter that ends with the one that asked for it."""
    fresh = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(max_workers=1, mp_context=fresh, initializer=_end_with_parent)


def kill(process: Executor) -> None:
    """End a judge's process at once, whatever it is doing; its device is free then."""
    for each in list((getattr(process, "_processes", None) or {}).values()):  # 3.14: kill_workers
        each.kill()


def _end_with_parent() -> None:
    """An executor's process outlives a parent that was killed: it would hold the device's lock."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
