"""Run the null test: judge every reference against itself, which must gain nothing.

The test shows how large the harness's own noise and bias are on a device. Threat: a machine on
which equal code is certified faster would pay a candidate for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudal1.candidate import Candidate
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import Problem
from cudal1.record import Record
from cudal1.verdict import Verdict

ALLOWED = 1.01
"""Greatest certified speedup of a reference against itself. Above it the device, or the harness, is
at fault."""


class Calibration(Record):
    """A device's verdicts on references against themselves, in numbers."""

    num_verdicts: int
    num_wrong: int
    """Verdicts other than correct: on a reference that does not repeat itself."""
    num_above_100: int
    """Verdicts certified above 1.00."""
    num_above_101: int
    """Verdicts certified above 1.01."""
    median: float | None
    """The median of the estimated speedups; None when nothing was timed, as are the next two."""
    low: float | None
    """The 5 % quantile of the estimated speedups."""
    high: float | None
    """The 95 % quantile of the estimated speedups."""

    @property
    def is_clean(self) -> bool:
        """True if no verdict was certified above 1.01, and none was wrong."""
        return self.num_above_101 == 0 and self.num_wrong == 0


def null_verdicts(
    pool: Pool, problems: Sequence[Problem], *, repeat: int = 1
) -> Iterator[tuple[Problem, Verdict]]:
    """Judge each reference against itself `repeat` times; yield the verdicts as they come."""
    for problem in problems:
        null = Candidate(problem_id=problem.id, source=problem.null_source)
        for _ in range(repeat):
            yield problem, pool.judge(problem, null).verdict


def calibrate(verdicts: Sequence[Verdict]) -> Calibration:
    """Return the summary of a null test's verdicts."""
    timed = [v.measurement for v in verdicts if v.measurement is not None]
    estimates = sorted(m.speedup for m in timed)
    return Calibration(
        num_verdicts=len(verdicts),
        num_wrong=sum(not v.is_successful for v in verdicts),
        num_above_100=sum(m.certified > 1 for m in timed),
        num_above_101=sum(m.certified > ALLOWED for m in timed),
        median=quantile(estimates, 0.5),
        low=quantile(estimates, 0.05),
        high=quantile(estimates, 0.95),
    )


def quantile(ordered: Sequence[float], share: float) -> float | None:
    """Return a quantile of rising values, between neighbours in proportion; None of no values."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
