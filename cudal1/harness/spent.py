"""What bursts of the reference and of the candidate took and computed, timed or not, two by two.

Threat: a median sees neither the one burst in which the work of many was done, nor what others kept
waiting: so means, and the kernel's count, are there as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from cudal1.harness.burst import Burst
from cudal1.measurement import Role


def took_us(bursts: Sequence[Burst]) -> list[float]:
    """What each of some bursts took that are held against each other.

    By the clock. Where other programs disturbed any of them, which takes several times as long as
    its calls, all by what was computed: what is waited for a core is no part of a call, and what is
    computed does not change with waiting. All alike, for our own loop costs a little more by that
    count.
    """
    if any(burst.is_disturbed for burst in bursts):
        return [burst.computed_us for burst in bursts]
    return [burst.elapsed_us for burst in bursts]


class Spent:
    """In the order of a measurement's bursts."""

    def __init__(self) -> None:
        self._took_us: list[tuple[int, float, float]] = []
        """Calls of a burst of both, and what each call of the reference's and of the other took."""
        self._worked_us: dict[tuple[Role, int], list[float]] = defaultdict(list)
        """What each computed for a call of bursts of so many."""
        self._outside_us: dict[int, list[float]] = defaultdict(list)
        """What the candidate computed outside of intervals, beyond what is usual, where nobody
        disturbed it."""

    def __len__(self) -> int:
        """Bursts of both."""
        return len(self._took_us)

    def add(self, reference: Burst, candidate: Burst) -> None:
        """Two bursts of as many calls."""
        count = len(candidate.draws)
        reference_us, candidate_us = took_us((reference, candidate))
        self._took_us.append((count, reference_us / count, candidate_us / count))
        if not candidate.is_disturbed:
            self._outside_us[count].append(candidate.outside_us / count)
        self._worked_us[Role.REFERENCE, count].append(reference.worked_us / count)
        self._worked_us[Role.CANDIDATE, count].append(candidate.worked_us / count)

    def worked_us(self, role: Role, count: int) -> float:
        """What it computed for a call of bursts of so many, in the median, pauses included."""
        return median(self._worked_us[role, count])

    def outside_us(self, count: int) -> float:
        """What the candidate computes outside of the interval for a call of bursts of so many.

        In the median of those that nobody disturbed; 0 where there are none.
        """
        return median(self._outside_us[count] or [0.0])

    def uneven_us(self, since: int) -> float:
        """By how much more a call's mean exceeds its median for the candidate.

        In bursts from number `since` on, each held against those that are as long.
        """
        alike: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for count, *both_us in self._took_us[since:]:
            alike[count].append((both_us[0], both_us[1]))
        total_us = 0.0
        for took_us in alike.values():
            reference_us, candidate_us = zip(*took_us, strict=True)
            more_us = fmean(candidate_us) - median(candidate_us)
            more_us -= max(0.0, fmean(reference_us) - median(reference_us))
            total_us += more_us * len(took_us)
        return total_us / max(1, len(self) - since)
