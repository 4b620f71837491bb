"""Limit the wait for a worker, and measure the part of it in which something compiled.

A source that names a compiler has minutes, but only for compiling: only time in which something
compiles is taken from them. Compiling is seen by the processor time that the kernel counts. The
time of processes that the candidate's own process has started (`c++`, `nvcc`, `ptxas`) counts. Its
own time counts, too, where what the source names compiles in there (Inductor, Triton, Numba, CuPy).
Any other second is taken from the seconds that every candidate has.

Threat: a candidate that pretends to compile wins minutes of a device's time, and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

LOOK_S = 0.5
"""Seconds between two looks at the processor time."""


class Computed(NamedTuple):
    """Nanoseconds of processor time, as the kernel counts it, since a worker began."""

    own_ns: int
    """Nanoseconds of the candidate's own process."""
    others_ns: int
    """Nanoseconds of all processes that it has started, running or ended."""


class Patience:
    """A limit on a wait; call `begin` first.

    Args:
        limit_s: seconds of the whole wait.
        idle_s: seconds of it in which nothing may compile; None: the same as `limit_s`.
        look: asks the kernel for processor times.
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
        """Seconds of the whole wait, once it has ended."""
        self.compiling_s = 0.0
        """Seconds of the wait in which something compiled."""

    def begin(self) -> None:
        """Start the wait."""
        self._began = self._looked = self._clock()
        if self._look is not None:
            self._seen = self._look()

    def is_over(self) -> bool:
        """Return whether the wait is over; look at processor times when it is time to."""
        now = self._clock()
        if now - self._looked >= LOOK_S:
            self._note(now)
        idle_s = now - self._began - self.compiling_s
        return now - self._began > self.limit_s or idle_s > self._idle_limit_s

    def excuse(self, seconds: float) -> None:
        """Leave out so many of the seconds since the last look: other judges had the device."""
        self._began += seconds
        self._looked += seconds

    def end(self) -> None:
        """End the wait: note its seconds, and those in which something compiled."""
        now = self._clock()
        self._note(now)
        self.elapsed_s = now - self._began

    @property
    def has_compiled_too_long(self) -> bool:
        """True if the wait was over although something was still compiling."""
        return self._idle_limit_s < self.limit_s < self.elapsed_s

    def _note(self, now: float) -> None:
        if self._look is not None:
            seen = self._look()
            has_compiled = seen.others_ns > self._seen.others_ns
            if has_compiled or (self._counts_own and seen.own_ns > self._seen.own_ns):
                self.compiling_s += now - self._looked
            self._seen = seen
        self._looked = now
