"""Measurement: the times of a candidate, and what follows from them.

All times are microseconds for one call, net of the harness's own cost.
`cudal1.harness.exchange.burst` takes them; `cudal1.harness.timing.statistics` turns them into a
bound.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from cudal1.baseline import Baseline
from cudal1.record import Record

AT_ROOFLINE = 1.1
"""A candidate's time over the floor, at most, when it counts as having nothing left to gain."""


class Role(StrEnum):
    """The module that a burst calls."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"
    EMPTY = "empty"
    """A burst without calls: the harness's own cost, subtracted from the other two."""


class Doubt(StrEnum):
    """The reason for believing less than was certified (`harness.timing`: `credible`, `claims`)."""

    OVERHEAD = "overhead"
    """On a CPU: the speedup may be the cost that a leaner calling loop than ours saves."""
    WORK = "work"
    """On a CPU: the kernel's counts of the work of both sides support less."""
    PREPARED = "prepared"
    """On a CPU: outputs prepared earlier may be left, or the gain is smaller once none can be
    left."""
    MEDIAN = "median"
    """Most bursts support less than the quads, which take the shorter of two bursts."""
    UNEVEN = "uneven"
    """Some bursts take much longer than most."""
    TOGETHER = "only_together"
    """On a GPU: calls save the time only where all inputs are published together."""
    ONCE = "once_a_burst"
    """On a GPU: the time is saved once a burst, however many calls the burst has."""
    LONGER = "not_when_longer"
    """On a GPU: the last and longest bursts support less."""
    AGAIN = "again"
    """A second measurement, in fresh processes, certifies less."""
    APART = "apart"
    """A second measurement, in fresh processes, shows a speedup that differs by more than noise."""
    REFERENCE = "weak_reference"
    """The check would let a candidate through that leaves out work, so no gain counts."""


class TimingSample(Record):
    """One burst inside one trusted interval."""

    session: int = Field(ge=0)
    """0 for the first measurement, 1 and 2 for its confirmations in fresh processes."""
    quad: int = Field(ge=0)
    """Number of the ABBA or BAAB quad, in time order."""
    position: int = Field(ge=0, le=3)
    """Place inside the quad."""
    role: Role
    num_calls: int = Field(ge=1)
    """Calls in the burst."""
    burst_us: float = Field(ge=0)
    """The whole interval, from publishing inputs to holding every output, and charges. Where other
    programs disturbed its quad on a CPU: the computed time (`harness.exchange.burst_times`)."""
    net_us: float
    """Microseconds of one call, net of the empty burst; negative when a call costs nothing
    measurable."""


class Measurement(Record):
    """The comparison of one candidate with one baseline."""

    baseline: Baseline
    """The other side of the quads: the eager reference."""
    speedup: float = Field(gt=0)
    """Estimate: reference time over candidate time; median of the bucket medians (paper eq. 3)."""
    certified: float = Field(ge=0)
    """Largest speedup that the stop rule certified at `alpha`. Of a candidate that is certified to
    be slower: the smallest speedup above its own. 1.0 where no difference is shown. Without an
    `alpha` nothing is certified: the value is then the reading of the paper's rule."""
    alpha: float | None
    """Probability of a false `certified`; None under the paper's rule, which has none."""
    lower: float | None = None
    """The median speedup is below this with probability `alpha` at most; None: too few quads. It
    may be above `certified`, which is rounded down and may be lowered by a doubt."""
    doubt: Doubt | None = None
    """The doubt that lowered `certified` most; None where the quads alone certify no more. A weak
    reference is named even if they do not."""
    believed: float | None = None
    """The speedup that the doubt allows; None without a doubt."""
    upper: float | None = None
    """The median speedup is above this with probability `alpha` at most; None: too few quads."""
    num_quads: int = Field(ge=0)
    """ABBA or BAAB quads. Pairs under the paper's rule, and where pairs suffice
    (`harness.timing.rule`)."""
    bucket_medians: tuple[float, ...]
    """Median speedup of each time-ordered bucket; under the paper's rule its mean."""
    bucket_variance: float = Field(ge=0)
    """Sample variance of `bucket_medians`."""
    is_stable: bool
    """False: the variance gate or the agreement of the buckets failed, in the first or a later
    measurement. Without an `alpha` nothing above 1.0 then counts; bounds hold all the same."""
    is_confirmed: bool | None = None
    """True if fresh processes agreed with a large claim; None for a claim too small to confirm."""
    confirmed_on: str | None = None
    """Id of the device that repeated the measurement."""
    reference_us: float
    """Median time of one call, in µs."""
    candidate_us: float
    """Median time of one call, in µs."""
    floor_us: float | None = None
    """Least time that one call can take, in µs (`cudal1.harness.oracle.roofline`); None where no
    floor was proved."""

    @property
    def at_most(self) -> float:
        """The speedup read upwards, for comparing others with this one.

        It is the upper bound at `alpha`; without one, the fastest bucket.
        """
        return max(self.speedup, self.upper or max(self.bucket_medians, default=self.speedup))

    @property
    def speed_of_light(self) -> float | None:
        """The floor over the candidate's time: 1 is as fast as the device can be."""
        if self.floor_us is None:
            return None
        return self.floor_us / self.candidate_us if self.candidate_us > 0 else math.inf

    @property
    def is_at_roofline(self) -> bool:
        """Return whether the candidate is so close to the floor that nothing is left to gain."""
        return (self.speed_of_light or 0.0) * AT_ROOFLINE >= 1

    @model_validator(mode="after")
    def _asked_somewhere(self) -> Self:
        if self.confirmed_on is not None and self.is_confirmed is None:
            raise ValueError(f"asked on {self.confirmed_on}, without an answer")
        return self

    @model_validator(mode="after")
    def _refused_earns_nothing(self) -> Self:
        is_refused = self.is_confirmed is False or (self.alpha is None and not self.is_stable)
        if is_refused and self.certified > 1.0:
            raise ValueError(f"certified {self.certified} without an agreeing, stable measurement")
        return self
