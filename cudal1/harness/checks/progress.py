"""Hold what is known about a candidate while it is judged."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cudal1.harness.oracle.correctness import ORDER, Comparison
from cudal1.measurement import TimingSample
from cudal1.protocol import PrecisionClass
from cudal1.verdict import Correctness, Phases, Properties


@dataclass
class Compared:
    """The results of all comparisons of outputs so far."""

    num_inputs: int = 0
    stage: int = 0
    precision: PrecisionClass | None = None
    relative_l2: float = 0.0
    scaled_error: float = 0.0
    mismatch: str | None = None
    has_begun: bool = False

    def copy(self) -> Compared:
        """Return a copy of these results."""
        return replace(self)

    def correctness(self) -> Correctness | None:
        """Return the record of these results; None before any output was compared."""
        if not self.has_begun:
            return None
        infinite = float("inf")
        return Correctness(
            num_inputs=self.num_inputs,
            stage=self.stage,
            precision=self.precision,
            max_relative_l2=self.relative_l2 if self.relative_l2 < infinite else None,
            max_scaled_error=self.scaled_error if self.scaled_error < infinite else None,
            first_mismatch=self.mismatch,
        )

    def note(self, comparison: Comparison, asked: PrecisionClass) -> None:
        """Take one output's comparison into account."""
        met = next((p for p in ORDER if comparison.meets(p)), None)
        self.relative_l2 = _worse(self.relative_l2, comparison.relative_l2)
        self.scaled_error = _worse(self.scaled_error, comparison.worst[asked])
        self.precision = max(self.precision or ORDER[0], met, key=ORDER.index) if met else None


class Phase(StrEnum):
    """A phase of a device's work for a verdict, by the fields of `Phases`."""

    STARTING = "starting_s"
    COMPILING = "compiling_s"
    CHECKING = "checking_s"
    MEASURING = "measuring_s"


class Stopwatch:
    """A count of a verdict's seconds, each in one phase; it starts when it is made.

    Args:
        clock: returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._phase = Phase.STARTING
        self._since = clock()
        self._seconds = dict.fromkeys(Phase, 0.0)

    @contextmanager
    def during(self, phase: Phase) -> Iterator[None]:
        """Count in this phase, then in the earlier one again."""
        before = self._phase
        self._turn_to(phase)
        try:
            yield
        finally:
            self._turn_to(before)

    def compiled(self, seconds: float) -> None:
        """Count so many seconds of the present phase as compiling."""
        self._seconds[self._phase] -= seconds
        self._seconds[Phase.COMPILING] += seconds

    def phases(self) -> Phases:
        """Return the seconds that were counted so far."""
        self._turn_to(self._phase)
        return Phases.model_validate(
            {phase.value: max(0.0, seconds) for phase, seconds in self._seconds.items()}
        )

    def _turn_to(self, phase: Phase) -> None:
        now = self._clock()
        self._seconds[self._phase] += now - self._since
        self._since, self._phase = now, phase


@dataclass
class Progress:
    """The knowledge so far about the candidate, from all of its processes."""

    compiles: bool = False
    """True if the candidate's source names a compiler (`toolchain.compiles`)."""
    compiles_itself: bool = False
    """True if the source names a compiler that works in the candidate's own process."""
    stopwatch: Stopwatch = field(default_factory=Stopwatch)
    compared: Compared = field(default_factory=Compared)
    seen: Properties = field(default_factory=Properties)
    """Properties that were seen, beyond the outputs."""
    call_us: float = float("inf")
    """Rough time of one call in µs, harness included."""
    num_widened: int = 0
    """Number of outputs for which answers were widened (`output_check`)."""
    num_hard: int = 0
    """Number of the problem's own inputs that said nothing (`output_check`)."""
    layers: tuple[str, ...] = ()
    is_to_confirm: bool = False
    """True if the candidate has made a claim that counts only if another device agrees."""
    samples: list[TimingSample] = field(default_factory=list[TimingSample])

    def saw(self, **properties: bool) -> None:
        """Note what was seen, by the names of `Properties`."""
        self.seen = self.seen.model_copy(update=properties)


def _worse(known: float, new: float) -> float:
    return new if not new <= known else known
