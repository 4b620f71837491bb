"""Start and end the processes that judge, one for each device.

They run here or on another machine (`cluster`). A judge spins while it waits, so two of them cannot
share an interpreter; and a CUDA context does not survive a fork.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor
from contextlib import contextmanager
from dataclasses import dataclass

from cudal1.harness.device.device import Device
from cudal1.harness.schedule import assignment
from cudal1.harness.schedule.isolated import Isolated


class MachineLost(BrokenExecutor):
    """The loss of a machine and of all its device processes; no candidate is to blame."""


@dataclass(frozen=True)
class DeviceProcess:
    """A device, and the process that judges on it."""

    device: Device
    process: Executor
    """The executor of one process, always the same. Once the process is lost, each question raises
    `BrokenExecutor`, or its future does. Questions are answered in their order."""
    machine: str = ""
    """The address of the machine, unless it is this one."""

    def __str__(self) -> str:
        place = f" on {self.machine}" if self.machine else ""
        return f"{self.device.kind} {self.device.id}{place}"


@contextmanager
def processes_here(devices: Sequence[Device]) -> Iterator[list[DeviceProcess]]:
    """Yield a device process for each of this machine's devices.

    A process starts when it is first asked. Where the work fails or is interrupted, all processes
    end at once, whatever they are doing.
    """
    with _ended(Isolated() for _ in devices) as processes:
        yield [DeviceProcess(*pair) for pair in zip(devices, processes, strict=True)]


@contextmanager
def processes_found_here(find: Callable[[], Sequence[Device]]) -> Iterator[list[DeviceProcess]]:
    """Look for devices while the first one's process starts; yield their device processes.

    Looking for GPUs imports PyTorch, and so does that process: seconds each.
    """
    with _ended([Isolated()]) as (first,):
        first.submit(assignment.get_ready)
        devices = find()
        with processes_here(devices[1:]) as others:
            yield [DeviceProcess(devices[0], first), *others]


@contextmanager
def _ended(made: Iterable[Isolated]) -> Iterator[list[Isolated]]:
    """Yield processes, and have them end."""
    processes = list(made)
    try:
        yield processes
    except BaseException:  # Ctrl-C, too: the processes end, and it is raised again
        for process in processes:
            process.kill()
        raise
    finally:
        for process in processes:
            process.shutdown()


def kill(process: Executor) -> None:
    """End a judge's process at once, whatever it is doing; its device is free then."""
    if isinstance(process, Isolated):
        process.kill()
