"""Run on one machine of a Ray cluster what judges on its devices, and what compiles ahead.

Threat: as in `cluster`.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudal1.candidate import Candidate
from cudal1.errors import CudaL1Error, DeviceError
from cudal1.harness.builds.builder import Builder
from cudal1.harness.device.device import Device
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.schedule.isolated import Isolated
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import HARNESS_VERSION, EvalProtocol

SLOWED = "Ray runs its workers at nice 15 there; start it with RAY_worker_niceness=0"

Find = Callable[[DeviceClass], list[Device]]


@dataclass(frozen=True)
class Answer:
    """An answer of a relay to a question; Ray would wrap errors in text of its own."""

    value: Any = None
    error: CudaL1Error | None = None
    is_lost: bool = False


class Relay:
    """A relay on a machine of the cluster; it owns the processes that judge on its devices."""

    def __init__(self, device_class: DeviceClass, find: Find) -> None:
        self._device_class = device_class
        self._find = find
        self._processes: dict[str, Isolated] = {}
        self._num_asked: Counter[str] = Counter()
        self._turn = threading.Condition()
        self._builder: Builder | None = None
        self._num_told = 0
        self._open = ExitStack()

    def devices(self) -> tuple[str, list[Device], str]:
        """Return the harness's version, this machine's devices, and why there are none."""
        try:
            if os.getpriority(os.PRIO_PROCESS, 0) > 0:
                os.setpriority(os.PRIO_PROCESS, 0, 0)
            devices = self._find(self._device_class)
        except PermissionError:
            return HARNESS_VERSION, [], SLOWED
        except DeviceError as error:
            return HARNESS_VERSION, [], str(error)
        self._processes = {device.id: Isolated() for device in devices}
        return HARNESS_VERSION, devices, ""

    def run(
        self, device_id: str, number: int, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> Answer:
        """Return the answer of one device's process, which is asked in the order of the numbers."""
        with self._turn:  # Ray has a thread for each question
            self._turn.wait_for(lambda: self._num_asked[device_id] == number)
            try:
                asked = self._processes[device_id].submit(function, *args)
            except BrokenExecutor:
                return Answer(is_lost=True)
            finally:
                self._num_asked[device_id] += 1
                self._turn.notify_all()
        try:
            return Answer(asked.result())
        except BrokenExecutor:
            return Answer(is_lost=True)
        except CudaL1Error as error:
            return Answer(error=error)

    # --- compiling ahead, for a ClusterBuilder ---------------------------------------------------

    def open_builder(
        self, devices: list[Device], protocol: EvalProtocol, num_workers: int | None
    ) -> Answer:
        """Get ready to compile; return the toolchain and how many candidates compile side by side.

        What is compiled is kept where the command runs; here until the end.
        """
        with ExitStack() as opening:
            folder = opening.enter_context(
                tempfile.TemporaryDirectory(prefix="cudal1-builds-", ignore_cleanup_errors=True)
            )
            builder = Builder(devices, protocol, Path(folder), num_workers=num_workers)
            try:
                self._builder = opening.enter_context(builder)
            except CudaL1Error as error:
                return Answer(error=error)
            self._open = opening.pop_all()
        return Answer((builder.kept.toolchain, builder.num_workers))

    def build(
        self, problem: Problem, candidate: Candidate
    ) -> tuple[Failure | None, bytes | None, str]:
        """Build a candidate.

        Returns:
            What a compiler said; what was compiled, if that is known; why no more will be compiled.
        """
        builder = self._builder
        if builder is None:
            return None, None, ""  # closed meanwhile
        failure = None
        with suppress(CancelledError):  # passed over meanwhile
            failure = builder.begin(problem, candidate).result()
        return failure, builder.kept.find(candidate), builder.complaint

    def pass_over(self, candidate: Candidate) -> None:
        """Cancel the build of a candidate, if it has not begun."""
        if self._builder is not None:
            self._builder.pass_over(candidate)

    def make_room(self, number: int, *, wanted: bool) -> None:
        """Set whether a device measures; of two calls out of order the later one counts."""
        with self._turn:
            if self._builder is not None and number > self._num_told:
                self._num_told = number
                self._builder.make_room(wanted=wanted)

    def close_builder(self) -> None:
        """Compile no more."""
        self._builder = None
        self._open.close()

    def close(self) -> None:
        """End the processes once they have done what they were asked."""
        for process in self._processes.values():
            process.shutdown()
