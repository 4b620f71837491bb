"""Claims that wait for confirmation, by another device of the kind where there is one.

Threat: none new; no problem's code and no candidate runs in this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.assignment import Assignment
from cudal1.harness.schedule.open_processes import OpenProcesses

MANY_CLAIMS = 32
"""Number of waiting claims that are worth preparing their problem for, before a device is done with
its own."""
MAX_COMPILED_BYTES = 256 << 20
"""Bytes of compiled code that waiting claims may hold. What is more is compiled again where the
claim is confirmed."""


class WaitingClaims:
    """Claims by the device that is to confirm them.

    Args:
        device_processes: those of the fleet.
    """

    def __init__(self, device_processes: OpenProcesses) -> None:
        self._device_processes = device_processes
        self._claims: dict[str, deque[Assignment]] = {}

    def __len__(self) -> int:
        """Return the number of claims of all devices."""
        return sum(map(len, self._claims.values()))

    def clear(self) -> None:
        """Forget all claims."""
        self._claims = {each.device.id: deque() for each in self._device_processes.all}

    def of(self, device: str) -> deque[Assignment]:
        """Return the claims that a device is to confirm, the oldest first."""
        return self._claims[device]

    def is_full(self, device: str) -> bool:
        """Return whether a device has as many as are worth preparing their problems for."""
        return len(self._claims[device]) >= MANY_CLAIMS

    def add(self, task: Assignment, at: Mapping[str, str]) -> bool:
        """Give a claim to a device that can confirm it; return whether there is one.

        Args:
            task: has the claim.
            at: the id of the problem that each place has prepared.
        """
        able = self.confirmers(task)
        if not able:
            return False

        def burden(device: str) -> tuple[bool, int]:
            mine, problem = self._claims[device], task.problem.id
            places = self._device_processes.places()
            prepared = {at.get(place.id) for place in places if place.device == device}
            is_there = problem in {*prepared, *(each.problem.id for each in mine)}
            return not is_there, len(mine)

        self._claims[min(able, key=burden)].append(task)
        return True

    def leave(self, device: str) -> list[Assignment]:
        """Return the claims of a device that is lost; it has none then."""
        left = [*self._claims[device]]
        self._claims[device].clear()
        return left

    def to_keep(self, claimed: Judgement) -> Judgement:
        """Return a claim to keep, with its compiled code unless all that is kept is large."""
        kept = [each.first for mine in self._claims.values() for each in mine if each.first]
        num_bytes = sum(len(each.compiled) for each in [*kept, claimed])
        return replace(claimed, compiled=b"") if num_bytes > MAX_COMPILED_BYTES else claimed

    def confirmers(self, task: Assignment) -> list[str]:
        """Return ids of the devices that can confirm a claim: others of its kind, else its own."""
        if task.first is None:
            return []
        kind, own = task.first.verdict.device_kind, task.first.verdict.device_id
        able = [
            each.device.id
            for each in self._device_processes.alive()
            if each.device.kind == kind and each.device.id not in task.refused_by
        ]
        return [device for device in able if device != own] or able
