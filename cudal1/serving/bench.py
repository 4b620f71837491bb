"""The judges of the server: device processes for as long as it runs, a fleet while there is work.

The devices are held while a fleet is open, and given back to other judges of the machine when
nothing waits. Another protocol needs another fleet.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

from cudal1.candidate import Candidate
from cudal1.errors import WorkerError
from cudal1.harness.admission.trying import ReferenceTrial
from cudal1.harness.cluster.cluster_builder import builder_for
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.device_processes import DeviceProcess, kill
from cudal1.harness.schedule.fleet import Fleet, RecordOf
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol

WAIT_S = 5.0
"""Seconds to wait for a device that another judge holds, before the server says so and tries
again."""

OpenProcesses = Callable[[], AbstractContextManager[Sequence[DeviceProcess]]]


@dataclass(frozen=True)
class Rules:
    """The settings that a server judges by."""

    device_class: DeviceClass
    protocol: EvalProtocol
    """The protocol of submissions that ask for nothing else."""
    max_reference_ms: float
    """Milliseconds that one call of a reference may take."""
    trial_limit_s: float
    """Seconds that the trial of one reference may take."""


class Bench:
    """The devices of the server; only one thread judges.

    Args:
        rules: what is judged by.
        open_processes: opens the devices' processes.
    """

    def __init__(self, rules: Rules, open_processes: OpenProcesses) -> None:
        self._rules = rules
        self._open_processes = open_processes
        self._processes = ExitStack()
        self._device_processes: Sequence[DeviceProcess] = ()
        self._opened = ExitStack()
        self._fleet: Fleet | None = None
        self._protocol: EvalProtocol | None = None
        self._stopping = threading.Event()

    @property
    def device_kind(self) -> str:
        """Return the kind of the devices; the first call starts their processes.

        Raises:
            DeviceError: there is no such device.
        """
        return self._running()[0].device.kind

    @property
    def num_devices(self) -> int:
        """Return how many devices judge."""
        return len(self._running())

    @property
    def is_here(self) -> bool:
        """Return whether all devices are this machine's; others may have other compilers."""
        return not any(each.machine for each in self._running())

    def is_open_for(self, protocol: EvalProtocol) -> bool:
        """Return whether the devices are held, by judges of this protocol."""
        return self._fleet is not None and self._protocol == protocol

    def open_for(self, protocol: EvalProtocol) -> None:
        """Hold the devices with judges of this protocol.

        Raises:
            DeviceError: other processes judge on all devices, or there is none.
            WorkerError: no judge starts, or the server stops.
        """
        self.rest()
        device_processes = self._running()
        with ExitStack() as opening:
            builder = opening.enter_context(builder_for(device_processes, protocol))
            self._fleet = opening.enter_context(
                Fleet(device_processes, protocol, wait_s=WAIT_S, builder=builder)
            )
            self._protocol = protocol
            self._opened = opening.pop_all()

    def judge(
        self, work: Sequence[tuple[Problem, Candidate]], *, timing: bool, record_of: RecordOf
    ) -> Iterator[Judgement | Refusal]:
        """Yield the judgement of each candidate, or why there can be none, as it comes.

        The devices are held: `open_for`. After an error `leave` must be called.

        Raises:
            WorkerError: the judges have died, or the server stops.
        """
        assert self._fleet is not None
        assert self._protocol is not None
        fleet, rules = self._fleet, self._rules
        trial = ReferenceTrial(self._protocol, rules.max_reference_ms, rules.trial_limit_s)
        ordered = sorted(work, key=lambda pair: pair[0].id)
        yield from fleet.judge_all(ordered, timing=timing, record_of=record_of, trial=trial)
        if fleet.lost:  # the next fleet has all of them again
            self.leave()

    def rest(self) -> None:
        """Give the devices back; their processes stay."""
        self._fleet = None
        self._protocol = None
        self._opened.close()

    def leave(self) -> None:
        """End the fleet and all processes, as they stand; the next question starts others."""
        for each in self._device_processes:
            kill(each.process)
        self.rest()
        self._device_processes = ()
        self._processes.close()

    def stop(self) -> None:
        """End the processes from another thread: what is being judged raises WorkerError."""
        self._stopping.set()
        for each in self._device_processes:
            kill(each.process)

    def _running(self) -> Sequence[DeviceProcess]:
        if not self._device_processes:
            self._device_processes = self._processes.enter_context(self._open_processes())
        if self._stopping.is_set():
            raise WorkerError("the server stops")
        return self._device_processes
