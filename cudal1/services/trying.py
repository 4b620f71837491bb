"""Trying a reference in the process that is to judge its candidates (`harness.trials`).

`admission` uses separate processes, where the only question is which problems can be judged. Here
what a trial has in memory, and what it learns, serves the verdicts that follow.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from cudal1.errors import DeviceLostError
from cudal1.harness import known_references
from cudal1.harness.device import Device
from cudal1.harness.mutants import examine
from cudal1.harness.turns import Turns
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.services import trial
from cudal1.services.admission import Check, Found, Memory, Probe, flaw_of, found_in
from cudal1.services.probe import MEMORY_BYTES
from cudal1.services.reasons import answered


@dataclass(frozen=True)
class ReferenceTrial:
    """Finds out whether a problem can be judged under a protocol (`harness.trials.Trial`)."""

    protocol: EvalProtocol
    max_reference_ms: float
    """The most that one call may take, in milliseconds."""
    call_limit_s: float
    """Seconds after which a call is ended."""

    def known(self, problem: Problem, device: Device) -> Found | None:
        """Return what its source shows, or an earlier run has found."""
        if flaw := flaw_of(problem):
            return Found(Probe(problem_id=problem.id, reason=flaw))
        memory = self._memory(device)
        probe = memory and memory.probe(problem)
        return Found(probe) if probe else None

    def find_out(self, problem: Problem, device: Device, turns: Turns) -> Found:
        """Try the reference, then what the correctness check would notice.

        Raises:
            DeviceLostError: the device computes no more.
        """
        answers: list[dict[str, Any]] = []
        with _little_memory(device):
            for look in (self._seen, self._examined):
                answers.append(answered(partial(look, problem, device, turns)))
                if answers[-1].get("is_lost"):
                    raise DeviceLostError(answers[-1]["reason"])
                if answers[-1]["reason"] is not None:
                    break
        return found_in(problem, answers)

    def keep(self, problem: Problem, device: Device, found: Found) -> None:
        """Remember what follows from the problem, and not from this moment."""
        if memory := self._memory(device):
            memory.keep(problem, found)

    def _seen(self, problem: Problem, device: Device, turns: Turns) -> dict[str, Any]:
        return trial.try_out(
            problem,
            device=device.torch_name,
            max_reference_ms=self.max_reference_ms,
            mode=self.protocol.mode,
            turns=turns,
        )

    def _examined(self, problem: Problem, device: Device, turns: Turns) -> dict[str, Any]:
        memory = self._memory(device)
        known = memory and memory.traits(problem)
        table, traits = examine(problem, self.protocol, device, known, turns)
        return {"table": table, "traits": traits}

    def _memory(self, device: Device) -> Memory | None:
        known = known_references.of_this_user()
        check = Check(self.protocol, device)
        return None if known is None else Memory(known, check, self.max_reference_ms)


@contextmanager
def _little_memory(device: Device) -> Iterator[None]:
    """Have a reference that fills the memory fail, and not the machine."""
    if device.device_class is DeviceClass.CUDA:
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_AS)
    hard = before[1]
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
