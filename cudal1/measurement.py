"""Measurement: what was timed, and what follows from it.

All times are microseconds for one call, net of the harness's own cost. How they are taken is
`cudal1.harness.burst`; how they become a bound is `cudal1.harness.statistics`.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from cudal1.baseline import Baseline
from cudal1.record import Record

AT_ROOFLINE = 1.1
"""A candidate that takes at most so many times the floor has nothing left to gain."""


class Role(StrEnum):
    """Whose burst it was."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"
    EMPTY = "empty"
    """A worker that computes nothing: the harness's own cost, subtracted from the other two."""


class Doubt(StrEnum):
    """Why less is believed than timing certified (`cudal1.harness.credible` and `.claims`)."""

    OVERHEAD = "overhead"
    """On a CPU: it may be what a leaner loop than ours leaves out."""
    WORK = "work"
    """On a CPU: by what the kernel says that both computed, it is less."""
    PREPARED = "prepared"
    """On a CPU: outputs that were prepared before may be left, or are no longer."""
    MEDIAN = "median"
    """Most bursts say less than quads, which take the shorter of two."""
    UNEVEN = "uneven"
    """Some bursts take much longer than most."""
    TOGETHER = "only_together"
    """On a GPU: calls save it only where all inputs are published together."""
    ONCE = "once_a_burst"
    """On a GPU: it is saved once a burst, however many calls that has."""
    LONGER = "not_when_longer"
    """On a GPU: the last and longest bursts say less."""
    AGAIN = "again"
    """Measured again, in fresh processes, less is certified."""
    APART = "apart"
    """Measured again, in fresh processes, it is another speedup, not by noise alone."""


class TimingSample(Record):
    """One burst inside one trusted interval."""

    session: int = Field(ge=0)
    """0 for the first measurement, 1 and 2 for its confirmations in fresh processes."""
    quad: int = Field(ge=0)
    """Which ABBA or BAAB quad, in time order."""
    position: int = Field(ge=0, le=3)
    """Place inside the quad."""
    role: Role
    num_calls: int = Field(ge=1)
    """Calls in the burst."""
    burst_us: float = Field(ge=0)
    """The whole interval, from publishing inputs to holding every output, and charges. Where
    other programs disturbed its quad on a CPU: what was computed (`harness.spent`)."""
    net_us: float
    """One call, net of the empty burst; may be negative when a call costs nothing measurable."""


class Measurement(Record):
    """The comparison of one candidate with one baseline."""

    baseline: Baseline
    """What the quads alternate with: the eager reference."""
    speedup: float = Field(gt=0)
    """Estimate: reference time over candidate time; median of the bucket medians (paper eq. 3)."""
    certified: float = Field(ge=0)
    """Largest speedup that the stop rule certified at `alpha`. Of a candidate that is certified to
    be slower, the smallest above its own. 1.0 where no difference is shown.
    Without an `alpha` nothing is certified: it is the reading of the paper's rule."""
    alpha: float | None
    """Probability of a false `certified`; None under the paper's rule, which has none."""
    lower: float | None = None
    """The median speedup is below it with probability `alpha` at most; None: too few quads. It may
    be above `certified`, which is rounded down and may have been doubted since."""
    doubt: Doubt | None = None
    """What lowered `certified` most, where the quads alone certify more; otherwise None."""
    believed: float | None = None
    """The speedup that the doubt lets stand; None without one."""
    upper: float | None = None
    """The median speedup is above it with probability `alpha` at most; None: too few quads."""
    num_quads: int = Field(ge=0)
    """ABBA or BAAB quads; pairs under the paper's rule, and where they suffice (`harness.rule`)."""
    bucket_medians: tuple[float, ...]
    """Speedup in each time-ordered bucket; under the paper's rule its mean."""
    bucket_variance: float = Field(ge=0)
    """Sample variance of `bucket_medians`."""
    is_stable: bool
    """False: the variance gate or the agreement of the buckets failed, here or when the claim was
    measured again. Without an `alpha` nothing above 1.0 then counts; bounds hold all the same."""
    is_confirmed: bool | None = None
    """For claims large enough to need it: whether fresh processes agreed. Otherwise None."""
    confirmed_on: str | None = None
    """Id of the device that was asked to confirm the claim."""
    reference_us: float
    """Median time of one call."""
    candidate_us: float
    """Median time of one call."""
    floor_us: float | None = None
    """No call can take less (`cudal1.harness.roofline`); None where nothing could be proved."""

    @property
    def at_most(self) -> float:
        """The speedup read upwards, for what others are held against.

        The upper bound at `alpha`; without one, the fastest bucket.
        """
        return max(self.speedup, self.upper or max(self.bucket_medians, default=self.speedup))

    @property
    def speed_of_light(self) -> float | None:
        """Floor over candidate time: 1 is as fast as the device can be."""
        if self.floor_us is None:
            return None
        return self.floor_us / self.candidate_us if self.candidate_us > 0 else math.inf

    @property
    def is_at_roofline(self) -> bool:
        """Whether the candidate is so close to the floor that nothing is left to gain."""
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
