"""A device of this machine that kept versions are judged on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from types import TracebackType
from typing import Self

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness.admission.trying import ReferenceTrial
from cudal1.harness.builds import toolchain
from cudal1.harness.builds.build_cache import default_folder
from cudal1.harness.builds.builder import Builder, may_compile
from cudal1.harness.device.device import Device, find_devices
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.device_processes import DeviceProcess, processes_found_here
from cudal1.harness.schedule.one_device import OneDevice
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol

Judge = Callable[[Problem, Candidate, EvalProtocol], Judgement]
"""A function that judges a candidate in fresh processes, under a protocol.

It raises SuiteError where it cannot."""


class Here:
    """A device of this machine to judge kept versions on, held alone while it is open.

    Args:
        device_class: the class of device.
        max_reference_ms: milliseconds that one call of a reference may take.
        time_limit_s: seconds that the trial of one reference may take.
        wait_s: for how many seconds to wait for a device that another judge holds.
    """

    def __init__(
        self,
        device_class: DeviceClass,
        *,
        max_reference_ms: float,
        time_limit_s: float,
        wait_s: float = 0.0,
    ) -> None:
        self._device_class = device_class
        self._max_reference_ms = max_reference_ms
        self._time_limit_s = time_limit_s
        self._wait_s = wait_s
        self._stack = ExitStack()
        self._judging = ExitStack()
        self._protocol_id = ""
        self._one: OneDevice | None = None
        self._process: DeviceProcess | None = None

    def __enter__(self) -> Self:
        """Find the device.

        Raises:
            DeviceError: there is none.
        """
        with ExitStack() as opening:
            find = partial(find_devices, self._device_class)
            (self._process, *_) = opening.enter_context(processes_found_here(find))
            opening.callback(self._close)
            self._stack = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def device(self) -> Device:
        """The device."""
        assert self._process is not None, "it is not open"
        return self._process.device

    def judge(self, problem: Problem, candidate: Candidate, protocol: EvalProtocol) -> Judgement:
        """Return a judgement in fresh processes.

        Raises:
            SuiteError: it cannot be judged here; the message says why.
            DeviceError: another process is judging on the device.
        """
        if missing := toolchain.missing_for(candidate.source, self._device_class):
            raise SuiteError(f"it {toolchain.remedy(missing)}")
        trial = ReferenceTrial(protocol, self._max_reference_ms, self._time_limit_s)
        try:
            return self._under(protocol, candidate).judge(problem, candidate, trial=trial)
        except SuiteError as error:
            reason = str(error).removeprefix(f"{problem.key}: ")
            raise SuiteError(f"its problem cannot be judged: {reason}") from error

    def _under(self, protocol: EvalProtocol, candidate: Candidate) -> OneDevice:
        """Return the judge under a protocol; one is open at a time, for it holds the device."""
        compiles = may_compile(candidate.source, self._device_class)
        wanted = f"{protocol.id} {compiles}"
        if self._one is None or self._protocol_id != wanted:
            self._close()
            with ExitStack() as opening:
                builder = None
                if compiles:
                    builder = opening.enter_context(
                        Builder([self.device], protocol, default_folder())
                    )
                self._one = opening.enter_context(
                    OneDevice(
                        self.device,
                        protocol,
                        wait_s=self._wait_s,
                        builder=builder,
                        device_process=self._process,
                    )
                )
                self._judging = opening.pop_all()
            self._protocol_id = wanted
        return self._one

    def _close(self) -> None:
        self._one = None
        self._judging.close()
