"""A trial for tests: it notes each problem that it tries in a folder and returns given results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cudal1.harness.admission.trial import RequireRoom
from cudal1.harness.device.device import Device
from cudal1.harness.device.turns import Turns
from cudal1.problem import Problem

LACKS_MEMORY = "raises OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB"


@dataclass(frozen=True)
class Said:
    """The result of a trial, like `admission.Found`."""

    reason: str | None = None
    note: str | None = None
    call_bytes: int = 0
    invariants: tuple[str, ...] = ()


@dataclass(frozen=True)
class Noting:
    """A trial with the methods of `trying.ReferenceTrial`.

    Args:
        folder: where it notes tries; any number of processes share it.
        reasons: why a problem cannot be judged, by its id: one a try, then the last one again.
        note: the note on every problem that can be judged.
        call_limit_s: seconds that a call into a reference may take.
    """

    folder: Path
    reasons: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    note: str | None = None
    call_limit_s: float = 60.0

    def known(self, problem: Problem, device: Device) -> Said | None:
        """Return the kept result of a problem, or None."""
        kept = self.folder / f"{problem.id}.kept"
        if not kept.exists():
            return None
        return Said(kept.read_text() or None, self.note)

    def find_out(
        self, problem: Problem, device: Device, turns: Turns, require_room: RequireRoom
    ) -> Said:
        """Note the try and return its result."""
        with (self.folder / f"{problem.id}.tries").open("a") as file:
            file.write(f"{device.id}\n")
        reasons = self.reasons.get(problem.id, (None,))
        return Said(reasons[min(self.num_tries(problem), len(reasons)) - 1], self.note)

    def keep(self, problem: Problem, device: Device, found: Said) -> None:
        """Keep a result for all processes that use this folder."""
        (self.folder / f"{problem.id}.kept").write_text(found.reason or "")

    def num_tries(self, problem: Problem) -> int:
        """Return how often a problem was tried, by any process."""
        tries = self.folder / f"{problem.id}.tries"
        return len(tries.read_text().splitlines()) if tries.exists() else 0
