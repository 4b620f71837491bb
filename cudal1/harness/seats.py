"""Seats: a device, and the process that judges on it, here or on another machine (`cluster`).

A judge spins while it waits, so two of them cannot share an interpreter; and a CUDA context does
not survive a fork.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager
from dataclasses import dataclass

from cudal1.harness.device import Device
from cudal1.harness.isolated import Isolated


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
    """Yield one for each of this machine's devices; their processes start when they are asked.

    Where the work fails or is interrupted they end at once, whatever they are doing.
    """
    seats = [Seat(device, Isolated()) for device in devices]
    try:
        yield seats
    except BaseException:
        for seat in seats:
            kill(seat.process)
        raise
    finally:
        for seat in seats:
            seat.process.shutdown()


def kill(process: Executor) -> None:
    """End a judge's process at once, whatever it is doing; its device is free then."""
    if isinstance(process, Isolated):
        process.kill()
