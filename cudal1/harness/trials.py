"""What a judge has to know of trials, which find out whether a problem can be judged.

`services.trying` has the one that there is. A trial runs in the process that is to judge candidates
for the problem: what it learns, and what it has in memory, serves both.
"""

from __future__ import annotations

from typing import Any, Protocol

from cudal1.harness.device import Device
from cudal1.harness.turns import Turns
from cudal1.problem import Problem


class Found(Protocol):
    """What a trial has found of a problem."""

    @property
    def reason(self) -> str | None:
        """Why it cannot be judged; None: it can."""
        ...

    @property
    def note(self) -> str | None:
        """What its check would let through, if anything."""
        ...


class Trial(Protocol):
    """How to find it out; sent to other processes, and to other machines."""

    @property
    def call_limit_s(self) -> float:
        """Seconds that a call into a reference may take."""
        ...

    def known(self, problem: Problem, device: Device) -> Found | None:
        """Return what an earlier run has found; for processes that run no problem's code."""
        ...

    def find_out(self, problem: Problem, device: Device, turns: Turns) -> Found:
        """Return what is found now, in the problem's process, which uses the device."""
        ...

    def keep(self, problem: Problem, device: Device, found: Any) -> None:
        """Remember it for later runs; for processes that run no problem's code."""
        ...
