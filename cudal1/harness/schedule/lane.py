"""Keep what stands at one of a device's lanes: a problem's process and the question that it has."""

from __future__ import annotations

from dataclasses import dataclass

from cudal1.harness.reference.forked import Forked
from cudal1.harness.sandbox.launch import Lent, Source
from cudal1.harness.schedule.pending import Pending


@dataclass
class Lane:
    """A place for the process of one problem."""

    number: int
    forked: Forked | None = None
    problem_id: str = ""
    width: int = 1
    """Number of lanes that the process takes up the memory of."""
    source: Source | Lent | None = None
    """The zygote's process that forks its workers."""
    has_compilers: bool = False
    """True if that process has imported compilers."""
    pending: Pending | None = None
    until: float = 0.0

    def close(self) -> None:
        """End the lane's process."""
        forked, self.forked, self.problem_id = self.forked, None, ""
        if forked is not None:
            forked.close()

    def kill(self) -> None:
        """End the lane's process as it stands."""
        forked, self.forked, self.problem_id = self.forked, None, ""
        if forked is not None:
            forked.kill()
