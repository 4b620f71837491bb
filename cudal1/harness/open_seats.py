"""Seats of a fleet that judge, from when they open until they are lost.

Threat: none new; no problem's code and no candidate runs in this process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack, suppress
from typing import NamedTuple

from cudal1.errors import CudaL1Error, DeviceError, WorkerError
from cudal1.harness import errand
from cudal1.harness.device import num_lanes_of
from cudal1.harness.isolated import Isolated
from cudal1.harness.seats import Seat
from cudal1.protocol import EvalProtocol

FREE_LIMIT_S = 10.0
"""Seconds in which the kernel gives the lock of a judge that died free."""


class Place(NamedTuple):
    """One of the judges of a seat's device, which take turns on it (`turns`)."""

    seat: Seat
    number: int

    @property
    def device(self) -> str:
        """Its device's id."""
        return self.seat.device.id

    @property
    def id(self) -> str:
        """Its own."""
        return f"{self.device}/{self.number}"


def places_of(seat: Seat) -> list[Place]:
    """Return the places of a seat."""
    return [Place(seat, number) for number in range(num_lanes_of(seat.device))]


class OpenSeats:
    """Seats whose processes hold their devices and judge on them.

    Args:
        seats: of different devices.
        protocol: how they judge.
        wait_s: for how long to wait for a device that another judge holds.
    """

    def __init__(self, seats: Sequence[Seat], protocol: EvalProtocol, wait_s: float) -> None:
        self.all = list(seats)
        assert len({seat.device.id for seat in seats}) == len(seats) > 0
        self.lost: list[Seat] = []
        self._protocol = protocol
        self._wait_s = wait_s
        self._why_lost: dict[Seat, str] = {}

    def open(self, opening: ExitStack) -> None:
        """Start a judge for each device; one that another process holds is lost.

        Raises:
            DeviceError: other processes are judging on all of them.
            WorkerError: the processes of all have died.
        """
        asked: dict[Seat, Future[None]] = {}
        for seat in self.all:
            try:
                asked[seat] = seat.process.submit(
                    errand.open_pool, seat.device, self._protocol, self._wait_s
                )
            except BrokenExecutor:
                self.lost.append(seat)
            opening.callback(_ask_last, seat.process, errand.close_pool)
        for seat, future in asked.items():
            try:
                future.result()
            except BrokenExecutor:
                self.lost.append(seat)
            except DeviceError as error:
                self._why_lost[seat] = str(error)
                self.lost.append(seat)
        if len(self._why_lost) == len(self.all):
            raise DeviceError("; ".join(self._why_lost.values()))
        if not self.alive():
            raise self.none_left()

    def alive(self) -> list[Seat]:
        """Return those that are not lost."""
        return [seat for seat in self.all if seat not in self.lost]

    def places(self) -> list[Place]:
        """Return the places of all that are not lost."""
        return [place for seat in self.alive() for place in places_of(seat)]

    def other(self, seat: Seat) -> Seat | None:
        """Return another device of the same kind, if there is one."""
        mine = seat.device
        others = (each for each in self.alive() if each.device.kind == mine.kind)
        return next((each for each in others if each.device.id != mine.id), None)

    def leave(self, seat: Seat, why: str) -> None:
        """Have the process of a device that computes no more end as it stands."""
        self._why_lost[seat] = why
        _ask_last(seat.process, errand.leave)

    def is_revived(self, seat: Seat) -> bool:
        """Start another process for a device whose judge died, if it is of this machine."""
        if not isinstance(seat.process, Isolated):
            return False
        seat.process.revive()
        wait_s = max(self._wait_s, FREE_LIMIT_S)
        try:
            seat.process.submit(errand.open_pool, seat.device, self._protocol, wait_s).result()
        except (BrokenExecutor, CudaL1Error) as error:
            self._why_lost[seat] = f"the judge on {seat} died, and no other starts: {error}"
            return False
        return True

    def why_lost(self, seat: Seat) -> str:
        """Return what became of one that is lost, as far as we know."""
        return self._why_lost.get(seat, f"the judge on {seat} died")

    def none_left(self) -> WorkerError:
        """Return what to raise where all are lost."""
        said = "; ".join(self._why_lost.values()) or "every process that judged has died"
        return WorkerError(f"{said}: start again")


def _ask_last(process: Executor, last: Callable[[], None]) -> None:
    with suppress(BrokenExecutor):
        process.submit(last)
