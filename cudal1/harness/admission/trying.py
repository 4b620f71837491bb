"""A trial in the process that is to judge the reference's candidates.

`admission` uses separate processes, where the only question is which problems can be judged. Here
the memory and the knowledge of a trial serve the verdicts that follow.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from cudal1.errors import DeviceLostError
from cudal1.harness.admission import known_references, trial
from cudal1.harness.admission.admission import Check, Found, Memory, Probe, flaw_of, found_in
from cudal1.harness.admission.probe import MEMORY_BYTES
from cudal1.harness.admission.reasons import answered
from cudal1.harness.admission.required import require_accuracy
from cudal1.harness.admission.trial import RequireRoom, any_room
from cudal1.harness.device.device import Device
from cudal1.harness.device.turns import Turns
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol


@dataclass(frozen=True)
class ReferenceTrial:
    """A trial of a reference under a protocol; sent to other processes, and to other machines."""

    protocol: EvalProtocol
    max_reference_ms: float
    """Milliseconds that one call may take at most."""
    call_limit_s: float
    """Seconds after which a call is ended."""

    def known(self, problem: Problem, device: Device) -> Found | None:
        """Return a fault of the source, or an earlier run's result; None without either."""
        if flaw := flaw_of(problem):
            return Found(Probe(problem_id=problem.id, reason=flaw))
        memory = self._memory(device)
        probe = memory and memory.probe(problem)
        return Found(probe) if probe else None

    def find_out(
        self, problem: Problem, device: Device, turns: Turns, require_room: RequireRoom = any_room
    ) -> Found:
        """Try the reference, then its correctness check with mutants.

        Args:
            problem: the reference's.
            device: it is tried there.
            turns: this judge's turns on the device.
            require_room: of `trial.try_out`.

        Raises:
            CrowdedError: `require_room` raised it.
            DeviceLostError: the device computes nothing after an error.
        """
        answers: list[dict[str, Any]] = []
        looks = partial(self._seen, require_room=require_room), self._examined
        with _little_memory(device):
            for look in looks:
                answers.append(answered(partial(look, problem, device, turns)))
                if answers[-1].get("is_lost"):
                    raise DeviceLostError(answers[-1]["reason"])
                if answers[-1]["reason"] is not None:
                    break
        return found_in(problem, answers)

    def keep(self, problem: Problem, device: Device, found: Found) -> None:
        """Store the results that follow from the problem alone, not from the current conditions."""
        if memory := self._memory(device):
            memory.keep(problem, found)

    def _seen(
        self, problem: Problem, device: Device, turns: Turns, *, require_room: RequireRoom
    ) -> dict[str, Any]:
        return trial.try_out(
            problem,
            device=device.torch_name,
            max_reference_ms=self.max_reference_ms,
            mode=self.protocol.mode,
            turns=turns,
            is_examined=True,
            require_room=require_room,
        )

    def _examined(self, problem: Problem, device: Device, turns: Turns) -> dict[str, Any]:
        # it imports PyTorch, and a process that only sends trials to others needs none
        from cudal1.harness.admission.mutants import examine

        memory = self._memory(device)
        known = memory and memory.traits(problem)
        table, traits = examine(problem, self.protocol, device, known, turns)
        require_accuracy(traits.off_by)
        return {"table": table, "traits": traits}

    def _memory(self, device: Device) -> Memory | None:
        known = known_references.of_this_user()
        check = Check(self.protocol, device)
        return None if known is None else Memory(known, check, self.max_reference_ms)


@contextmanager
def _little_memory(device: Device) -> Iterator[None]:
    """Limit the memory, so that a reference that fills it fails, and not the machine."""
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
