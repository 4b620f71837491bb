"""Whose turn it is: candidates by problem, for devices that prepare each problem they judge."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ByProblem(Generic[Item]):
    """A queue in runs of one problem: a device goes on with its own, then takes the next run.

    When no run is left, it takes the last of the longest: preparing a problem twice costs less than
    a device that has nothing to do.

    Args:
        items: taken a run at a time, as they are needed.
        problem_of: what of an item is the same throughout a run.
    """

    def __init__(self, items: Iterable[Item], problem_of: Callable[[Item], Hashable]) -> None:
        self._problem_of = problem_of
        self._runs: Iterator[deque[Item]] = (
            deque(run) for _, run in itertools.groupby(items, problem_of)
        )
        self._held: dict[Hashable, deque[Item]] = {}

    def take(self, device: Hashable) -> Item | None:
        """The next item for a device; None when all were taken."""
        run = self._held.get(device)
        if not run:
            run = self._held[device] = next(self._runs, deque[Item]())
        if run:
            return run.popleft()
        longest = max(self._held.values(), key=len)
        return longest.pop() if longest else None

    def drop(self, problem: Hashable) -> list[Item]:
        """Take all that is held of a problem; what is not held yet is of runs to come."""
        dropped: list[Item] = []
        for run in self._held.values():
            dropped += [item for item in run if self._problem_of(item) == problem]
            kept = [item for item in run if self._problem_of(item) != problem]
            run.clear()
            run.extend(kept)
        return dropped
