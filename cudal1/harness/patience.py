"""How long a worker is waited for, and which part of that it compiled.

A source that names a compiler has minutes, but no minute for nothing: only time in which something
compiles is taken from them. What compiles is seen by the processor time that the kernel counts:
that of processes which the candidate's own has started (`c++`, `nvcc`, `ptxas`), and its own, too,
where what the source names compiles in there (Inductor, Triton, Numba, CuPy). Any other second is
one of those that every candidate has.

Threat: a candidate that pretends to compile wins minutes of a device's time, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

LOOK_S = 0.5
"""Seconds between two looks at what compiles."""


class Computed(NamedTuple):
    """Nanoseconds of processor time, as the kernel counts it, since a worker began."""

    own_ns: int
    """By the candidate's own process."""
    others_ns: int
    """By all that it has started, which ended or not."""


class Patience:
    """Ends a wait; begin it first.

    Args:
        limit_s: all that is waited.
        idle_s: as much of it as nothing may compile; None: none of it is looked at.
        look: asks the kernel.
        counts_own: whether the candidate's own process may be compiling.
        clock: in seconds.
    """

    def __init__(
        self,
        limit_s: float,
        *,
        idle_s: float | None = None,
        look: Callable[[], Computed] | None = None,
        counts_own: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limit_s = limit_s
        self._idle_limit_s = limit_s if idle_s is None else idle_s
        self._look = look
        self._counts_own = counts_own
        self._clock = clock
        self._began = self._looked = 0.0
        self._seen = Computed(0, 0)
        self.elapsed_s = 0.0
        """Waited in all, once it was ended."""
        self.compiling_s = 0.0
        """Of it, while something compiled."""

    def begin(self) -> None:
        """Wait from now on."""
        self._began = self._looked = self._clock()
        if self._look is not None:
            self._seen = self._look()

    def is_over(self) -> bool:
        """Whether nothing is worth waiting for any longer; looks when it is time to."""
        now = self._clock()
        if now - self._looked >= LOOK_S:
            self._note(now)
        idle_s = now - self._began - self.compiling_s
        return now - self._began > self.limit_s or idle_s > self._idle_limit_s

    def excuse(self, seconds: float) -> None:
        """Count so many of the seconds since the last look as nobody's: others had the device."""
        self._began += seconds
        self._looked += seconds

    def end(self) -> None:
        """Note what was waited, and what of it something compiled."""
        now = self._clock()
        self._note(now)
        self.elapsed_s = now - self._began

    @property
    def has_compiled_too_long(self) -> bool:
        """Whether it was over although something went on compiling."""
        return self._idle_limit_s < self.limit_s < self.elapsed_s

    def _note(self, now: float) -> None:
        if self._look is not None:
            seen = self._look()
            has_compiled = seen.others_ns > self._seen.others_ns
            if has_compiled or (self._counts_own and seen.own_ns > self._seen.own_ns):
                self.compiling_s += now - self._looked
            self._seen = seen
        self._looked = now
