"""Judge on one device from any process: a `Pool` judges in processes of its own.

A process that trains, or that writes to standard output, runs no problem's code: see `pools`.
"""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness.device.device import Device
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import assignment
from cudal1.harness.schedule.ahead import Compiles
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.device_processes import DeviceProcess, processes_here
from cudal1.harness.schedule.fleet import Fleet
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol

if TYPE_CHECKING:  # it imports PyTorch, which a coordinator does without
    from cudal1.harness.admission.trying import ReferenceTrial


class OneDevice:
    """A device to judge on, held alone from the first candidate until this is closed.

    Args:
        device: the device.
        protocol: says how candidates are judged.
        wait_s: for how many seconds to wait for a device that another judge holds.
        builder: open; compiles candidates ahead.
        device_process: the device's, which the caller ends; None: this starts one of its own.
    """

    def __init__(
        self,
        device: Device,
        protocol: EvalProtocol,
        *,
        wait_s: float = 0.0,
        builder: Compiles | None = None,
        device_process: DeviceProcess | None = None,
    ) -> None:
        self.device = device
        self.protocol = protocol
        self._wait_s = wait_s
        self._builder = builder
        self._device_processes = [] if device_process is None else [device_process]
        self._fleet: Fleet | None = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Begin to start the device's process and its zygote, which takes seconds."""
        with ExitStack() as opening:
            self._device_processes = self._device_processes or opening.enter_context(
                processes_here([self.device])
            )
            self._device_processes[0].process.submit(assignment.begin_zygote, self.device)
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
        trial: ReferenceTrial | None = None,
    ) -> Judgement:
        """Return the judgement of one candidate; without `timing`, on its correctness only.

        Args:
            problem: the candidate's problem.
            candidate: what to judge.
            timing: whether to time it.
            record: the best certified speedup of the problem so far, where it is known.
            trial: finds out first whether the problem can be judged; None: that is known.

        Raises:
            SuiteError: the problem cannot be judged, or our machinery failed with it.
            DeviceError: another process is judging on the device.
            WorkerError: no process is left that judges, or none starts.
        """
        if self._fleet is None:
            fleet = Fleet(
                self._device_processes, self.protocol, wait_s=self._wait_s, builder=self._builder
            )
            self._fleet = self._open.enter_context(fleet)
        (said,) = self._fleet.judge_all(
            [(problem, candidate)], timing=timing, record_of=lambda *_: record, trial=trial
        )
        if isinstance(said, Refusal):
            raise SuiteError(said.reason)
        return said
