"""The null test: every reference judged against itself, which must gain nothing.

It shows what the harness's own noise and bias are worth on a device. Threat: a machine on which
equal code is certified faster would pay a candidate for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cudal1.candidate import Candidate
from cudal1.harness.pool import Pool
from cudal1.problem import Problem
from cudal1.record import Record
from cudal1.verdict import Verdict

ALLOWED = 1.01
"""A reference certified above this against itself: the device, or the harness, is at fault."""


class Calibration(Record):
    """What verdicts on references against themselves say about a device."""

    num_verdicts: int
    num_wrong: int
    """Verdicts other than correct: of a reference that does not repeat itself."""
    num_above_100: int
    """Certified above 1.00."""
    num_above_101: int
    """Certified above 1.01."""
    median: float | None
    """Of the estimated speedups; None when nothing was timed, as are the next two."""
    low: float | None
    """Their 5 % quantile."""
    high: float | None
    """Their 95 % quantile."""

    @property
    def is_clean(self) -> bool:
        """Nothing was certified above 1.01, and nothing was wrong."""
        return self.num_above_101 == 0 and self.num_wrong == 0


def null_verdicts(
    pool: Pool, problems: Sequence[Problem], *, repeat: int = 1
) -> Iterator[tuple[Problem, Verdict]]:
    """Judge each reference against itself `repeat` times, as they come."""
    for problem in problems:
        null = Candidate(problem_id=problem.id, source=problem.null_source)
        for _ in range(repeat):
            yield problem, pool.judge(problem, null).verdict


def calibrate(verdicts: Sequence[Verdict]) -> Calibration:
    """The summary of a null test's verdicts."""
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
    """Of rising values, between neighbours in proportion; None of none."""
    if not ordered:
        return None
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
