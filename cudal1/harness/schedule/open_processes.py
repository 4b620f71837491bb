"""Keep the device processes of a fleet, from when they open until they are lost.

Threat: none new; no problem's code and no candidate runs in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack, suppress
from typing import NamedTuple

from cudal1.errors import CudaL1Error, DeviceError, WorkerError
from cudal1.harness.device.device import num_lanes_of
from cudal1.harness.schedule import assignment
from cudal1.harness.schedule.device_processes import DeviceProcess
from cudal1.harness.schedule.isolated import Isolated
from cudal1.protocol import EvalProtocol

FREE_LIMIT_S = 10.0
"""Seconds in which the kernel gives the lock of a judge that died free."""


class Place(NamedTuple):
    """One of the judges of a device process, which take turns on its device (`turns`)."""

    device_process: DeviceProcess
    number: int

    @property
    def device(self) -> str:
        """The id of the device."""
        return self.device_process.device.id

    @property
    def id(self) -> str:
        """The id of the place."""
        return f"{self.device}/{self.number}"


def places_of(device_process: DeviceProcess) -> list[Place]:
    """Return the places of a device process."""
    return [Place(device_process, number) for number in range(num_lanes_of(device_process.device))]


class OpenProcesses:
    """The processes that hold their devices and judge on them.

    Args:
        device_processes: of different devices.
        protocol: says how they judge.
        wait_s: for how many seconds to wait for a device that another judge holds.
    """

    def __init__(
        self, device_processes: Sequence[DeviceProcess], protocol: EvalProtocol, wait_s: float
    ) -> None:
        self.all = list(device_processes)
        assert (
            len({device_process.device.id for device_process in device_processes})
            == len(device_processes)
            > 0
        )
        self.lost: list[DeviceProcess] = []
        self._protocol = protocol
        self._wait_s = wait_s
        self._why_lost: dict[DeviceProcess, str] = {}

    def open(self, opening: ExitStack) -> None:
        """Start a judge for each device; a device that another process holds is lost.

        Raises:
            DeviceError: other processes are judging on all of them.
            WorkerError: the processes of all have died.
        """
        asked: dict[DeviceProcess, Future[None]] = {}
        for device_process in self.all:
            try:
                asked[device_process] = device_process.process.submit(
                    assignment.open_pool, device_process.device, self._protocol, self._wait_s
                )
            except BrokenExecutor:
                self.lost.append(device_process)
            opening.callback(_ask_last, device_process.process, assignment.close_pool)
        for device_process, future in asked.items():
            try:
                future.result()
            except BrokenExecutor:
                self.lost.append(device_process)
            except DeviceError as error:
                self._why_lost[device_process] = str(error)
                self.lost.append(device_process)
        if len(self._why_lost) == len(self.all):
            raise DeviceError("; ".join(self._why_lost.values()))
        if not self.alive():
            raise self.none_left()

    def alive(self) -> list[DeviceProcess]:
        """Return the device processes that are not lost."""
        return [device_process for device_process in self.all if device_process not in self.lost]

    def places(self) -> list[Place]:
        """Return the places of all device processes that are not lost."""
        return [place for device_process in self.alive() for place in places_of(device_process)]

    def other(self, device_process: DeviceProcess) -> DeviceProcess | None:
        """Return the process of another device of the same kind, if there is one."""
        mine = device_process.device
        others = (each for each in self.alive() if each.device.kind == mine.kind)
        return next((each for each in others if each.device.id != mine.id), None)

    def leave(self, device_process: DeviceProcess, why: str) -> None:
        """End the process of a device that computes no more, as it stands."""
        self._why_lost[device_process] = why
        _ask_last(device_process.process, assignment.leave)

    def is_revived(self, device_process: DeviceProcess) -> bool:
        """Start another process for a device after its judge died; return whether it judges.

        Only processes of this machine can be started again.
        """
        if not isinstance(device_process.process, Isolated):
            return False
        device_process.process.revive()
        wait_s = max(self._wait_s, FREE_LIMIT_S)
        try:
            device_process.process.submit(
                assignment.open_pool, device_process.device, self._protocol, wait_s
            ).result()
        except (BrokenExecutor, CudaL1Error) as error:
            self._why_lost[device_process] = (
                f"the judge on {device_process} died, and no other starts: {error}"
            )
            return False
        return True

    def why_lost(self, device_process: DeviceProcess) -> str:
        """Return why a device process was lost, as far as we know."""
        return self._why_lost.get(device_process, f"the judge on {device_process} died")

    def none_left(self) -> WorkerError:
        """Return the error to raise where all are lost."""
        said = "; ".join(self._why_lost.values()) or "every process that judged has died"
        return WorkerError(f"{said}: start again")


def _ask_last(process: Executor, last: Callable[[], None]) -> None:
    with suppress(BrokenExecutor):
        process.submit(last)
