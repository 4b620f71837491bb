"""Judging on one device from any process: what a `Pool` says, from processes of its own.

A process that trains, or that writes to standard output, runs no problem's code: see `pools`.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness import errand
from cudal1.harness.ahead import Compiles
from cudal1.harness.device import Device
from cudal1.harness.errand import Refusal
from cudal1.harness.fleet import Fleet
from cudal1.harness.judge import Judgement
from cudal1.harness.seats import Seat, seats_here
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol


class OneDevice:
    """Judges on a device, which it holds alone from the first candidate until it is closed.

    Args:
        device: what it judges on.
        protocol: how.
        wait_s: for how long to wait for a device that another judge holds.
        builder: open; compiles candidates ahead.
    """

    def __init__(
        self,
        device: Device,
        protocol: EvalProtocol,
        *,
        wait_s: float = 0.0,
        builder: Compiles | None = None,
    ) -> None:
        self.device = device
        self.protocol = protocol
        self._wait_s = wait_s
        self._builder = builder
        self._seats: list[Seat] = []
        self._fleet: Fleet | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Begin to start the device's process and what forks workers, which takes seconds."""
        with ExitStack() as opening:
            self._seats = opening.enter_context(seats_here([self.device]))
            self._seats[0].process.submit(errand.begin_zygote, self.device)
            self._open = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.__exit__(kind, error, trace)
        self._fleet = None

    def judge(
        self,
        problem: Problem,
        candidate: Candidate,
        *,
        timing: bool = True,
        record: float | None = None,
    ) -> Judgement:
        """Return the judgement of one candidate; without `timing`, on its correctness only.

        Args:
            problem: what it is for.
            candidate: what to judge.
            timing: whether to time it.
            record: the best certified speedup of the problem so far, where it is known.

        Raises:
            SuiteError: the problem cannot be judged, or our machinery failed with it.
            DeviceError: another process is judging on the device.
            WorkerError: no process judges any more, or none starts.
        """
        if self._fleet is None:
            fleet = Fleet(self._seats, self.protocol, wait_s=self._wait_s, builder=self._builder)
            self._fleet = self._open.enter_context(fleet)
        (said,) = self._fleet.judge_all(
            [(problem, candidate)], timing=timing, record_of=lambda *_: record
        )
        if isinstance(said, Refusal):
            raise SuiteError(said.reason)
        return said
