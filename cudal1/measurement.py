"""Measurement: what was timed, and what follows from it.

All times are microseconds for one call, net of the harness's own cost. How they are taken is
`cudal1.harness.burst`; how they become a bound is `cudal1.harness.statistics`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from cudal1.record import Record


class Baseline(StrEnum):
    """A way of running the reference that candidates are timed against."""

    EAGER = "eager"


class Role(StrEnum):
    """Whose burst it was."""

    REFERENCE = "reference"
    CANDIDATE = "candidate"
    EMPTY = "empty"
    """A worker that computes nothing: the harness's own cost, subtracted from the other two."""


class TimingSample(Record):
    """One burst inside one trusted interval."""

    session: int = Field(ge=0)
    """0 for the first measurement, 1 for its confirmation in fresh processes."""
    quad: int = Field(ge=0)
    """Which ABBA or BAAB quad, in time order."""
    position: int = Field(ge=0, le=3)
    """Place inside the quad."""
    role: Role
    num_calls: int = Field(ge=1)
    """Calls in the burst."""
    burst_us: float = Field(ge=0)
    """The whole interval: from publishing inputs to holding every output."""
    net_us: float
    """One call, net of the empty burst; may be negative when a call costs nothing measurable."""


class Measurement(Record):
    """The comparison of one candidate with one baseline."""

    baseline: Baseline
    speedup: float = Field(gt=0)
    """Estimate: reference time over candidate time; median of the bucket medians (paper eq. 3)."""
    certified: float = Field(ge=0)
    """Largest claim level that the stop rule certified at `alpha`; 1.0 when none above it was, and
    the conservative reading of a slower candidate (its estimate, rounded up) when it is slower."""
    alpha: float
    num_quads: int = Field(ge=0)
    bucket_medians: tuple[float, ...]
    """Speedup in each time-ordered bucket."""
    bucket_variance: float = Field(ge=0)
    """Sample variance of `bucket_medians`."""
    is_stable: bool
    """False: the variance gate or the agreement of the buckets failed; `certified` is then 1.0."""
    is_confirmed: bool | None = None
    """For claims large enough to need it: whether fresh processes agreed. Otherwise None."""
    reference_us: float
    """Median time of one call."""
    candidate_us: float
    """Median time of one call."""

    @model_validator(mode="after")
    def _unstable_earns_nothing(self) -> Self:
        if (not self.is_stable or self.is_confirmed is False) and self.certified > 1.0:
            raise ValueError(f"certified {self.certified} without a stable, agreeing measurement")
        return self
