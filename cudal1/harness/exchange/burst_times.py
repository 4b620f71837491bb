"""Keep the times of a measurement's bursts in pairs: reference and candidate.

Threat: a median shows neither the one burst in which the work of many was done, nor the time that
other programs kept a worker waiting. So means, and the kernel's count of computing, are kept as
well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

from cudal1.harness.exchange.burst import Burst
from cudal1.measurement import Role


def took_us(bursts: Sequence[Burst]) -> list[float]:
    """Return the microseconds of each of some bursts that are compared with each other.

    The clock decides, unless other programs disturbed any of the bursts. A disturbed burst takes
    several times as long as its calls, so the kernel's count of computing then decides for all of
    them. Waiting for a core is no part of a call, and does not change what is computed. One rule
    holds for all of them, because our own loop costs a little more by that count.
    """
    if any(burst.is_disturbed for burst in bursts):
        return [burst.computed_us for burst in bursts]
    return [burst.elapsed_us for burst in bursts]


class BurstTimes:
    """The times of a measurement's bursts, in their order."""

    def __init__(self) -> None:
        self._took_us: list[tuple[int, float, float]] = []
        """A pair's number of calls; microseconds of each call of the reference and of the other
        one."""
        self._worked_us: dict[tuple[Role, int], list[float]] = defaultdict(list)
        """Microseconds computed for a call, by role and number of calls."""
        self._outside_us: dict[int, list[float]] = defaultdict(list)
        """Microseconds for a call that the candidate computed outside of intervals, beyond what is
        usual, by number of calls. Disturbed bursts are left out."""

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self._took_us)

    def add(self, reference: Burst, candidate: Burst) -> None:
        """Add a pair of bursts with the same number of calls."""
        count = len(candidate.draws)
        reference_us, candidate_us = took_us((reference, candidate))
        self._took_us.append((count, reference_us / count, candidate_us / count))
        if not candidate.is_disturbed:
            self._outside_us[count].append(candidate.outside_us / count)
        self._worked_us[Role.REFERENCE, count].append(reference.worked_us / count)
        self._worked_us[Role.CANDIDATE, count].append(candidate.worked_us / count)

    def worked_us(self, role: Role, count: int) -> float:
        """Return the median microseconds computed for a call, pauses included.

        Bursts of `count` calls decide.
        """
        return median(self._worked_us[role, count])

    def outside_us(self, count: int) -> float:
        """Return the candidate's median microseconds for a call outside of intervals.

        Undisturbed bursts of `count` calls decide; without any it is 0.
        """
        return median(self._outside_us[count] or [0.0])

    def uneven_us(self, since: int) -> float:
        """Return by how many microseconds more the candidate's mean exceeds its median, for a call.

        The excess of the reference's mean over its median is subtracted. Pairs from number `since`
        on count, and each is compared with pairs of the same number of calls.
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
