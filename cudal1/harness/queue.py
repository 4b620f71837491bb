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
        self._late: list[deque[Item]] = []
        """Runs of what was added, which no device holds."""
        self._last: dict[Hashable, Hashable] = {}
        """The problem of what each device took last."""

    def take(self, device: Hashable) -> Item | None:
        """The next item for a device; None when all were taken."""
        run = self._held.get(device)
        if not run:
            run = self._held[device] = self._next_run(device)
        item = None
        if run:
            item = run.popleft()
        elif longest := max(self._held.values(), key=len):
            item = longest.pop()
        if item is not None:
            self._last[device] = self._problem_of(item)
        return item

    def goes_on(self, device: Hashable) -> bool:
        """Whether the next item for a device is of the run that it holds."""
        return bool(self._held.get(device))

    def add(self, item: Item) -> None:
        """One more, behind others of its problem that are held, or in a run of its own."""
        problem = self._problem_of(item)
        for run in (*self._held.values(), *self._late):
            if run and self._problem_of(run[-1]) == problem:
                run.append(item)
                return
        self._late.append(deque([item]))

    def _next_run(self, device: Hashable) -> deque[Item]:
        """What was added of its problem, if there is any."""
        for number, run in enumerate(self._late):
            if self._problem_of(run[0]) == self._last.get(device):
                return self._late.pop(number)
        return next(self._runs, None) or (self._late.pop(0) if self._late else deque[Item]())

    def drop(self, problem: Hashable) -> list[Item]:
        """Take all that is held of a problem; what is not held yet is of runs to come."""
        dropped: list[Item] = []
        for run in (*self._held.values(), *self._late):
            dropped += [item for item in run if self._problem_of(item) == problem]
            kept = [item for item in run if self._problem_of(item) != problem]
            run.clear()
            run.extend(kept)
        self._late = [run for run in self._late if run]
        return dropped
