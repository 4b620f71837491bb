"""Queue candidates by problem, for devices that prepare each problem they judge."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ByProblem(Generic[Item]):
    """A queue in runs of one problem each.

    A device goes on with its own run, then takes the next one. When no run is left, it takes the
    last item of another device's run: of the same problem, or else of the longest run. Preparing a
    problem twice costs less than a device that has nothing to do. All devices shall end at the same
    time, so a device that went to another's run helps there before it goes back to its own.

    An item that is added later has been built, and no more are built than are judged. So its
    problem's run is the next one that a device begins.

    Args:
        items: taken a run at a time, as they are needed.
        problem_of: returns what all items of a run have in common.
    """

    def __init__(self, items: Iterable[Item], problem_of: Callable[[Item], Hashable]) -> None:
        self._problem_of = problem_of
        self._runs: Iterator[deque[Item]] = (
            deque(run) for _, run in itertools.groupby(items, problem_of)
        )
        self._drawn = deque[deque[Item]]()
        """Runs that come before those to come: released, or looked at."""
        self._held: dict[Hashable, deque[Item]] = {}
        self._late: list[deque[Item]] = []
        """Runs with items that were added, which no device holds; they come first."""
        self._last: dict[Hashable, Hashable] = {}
        """The problem of which a device took the last item, or to which it went."""

    def take(self, device: Hashable, besides: Collection[Hashable] = ()) -> Item | None:
        """Return the next item for a device, or None when all are taken.

        Items of the problems in `besides` stay where they are.
        """
        run = self._held.get(device)
        if not run:
            run = self._held[device] = self._next_run(device, besides)
        item = None
        if self._is_free(run, besides) and not self._is_needed_elsewhere(device, run):
            item = run.popleft()
        elif another := self._of_another(device, besides):
            item = another.pop()
        if item is not None:
            self._last[device] = self._problem_of(item)
        return item

    def went_to(self, device: Hashable, problem: Hashable) -> None:
        """Note that a device has prepared a problem, though it took nothing of it here."""
        self._last[device] = problem

    def _is_needed_elsewhere(self, device: Hashable, run: deque[Item]) -> bool:
        last = self._last.get(device)
        if last is None or self._problem_of(run[0]) == last or self.has_runs():
            return False
        others = (other for other in self._held.values() if other)
        return any(self._problem_of(other[0]) == last for other in others)

    def _of_another(self, device: Hashable, besides: Collection[Hashable]) -> deque[Item] | None:
        last = self._last.get(device)
        return max(
            (run for run in self._held.values() if self._is_free(run, besides)),
            key=lambda run: (self._problem_of(run[0]) == last, len(run)),
            default=None,
        )

    def _is_free(self, run: deque[Item], besides: Collection[Hashable]) -> bool:
        return bool(run) and self._problem_of(run[0]) not in besides

    def goes_on(self, device: Hashable, problem: Hashable) -> bool:
        """Return whether the next item for a device is of that problem."""
        if run := self._held.get(device):
            return self._problem_of(run[0]) == problem
        number = self._added_to(device)
        return number is not None and self._problem_of(self._late[number][0]) == problem

    def is_any_left(self) -> bool:
        """Return whether any item is left."""
        return any(self._held.values()) or self.has_runs()

    def num_held(self) -> int:
        """Return the number of items that devices have still to take from their runs."""
        return sum(map(len, self._held.values()))

    def release(self, device: Hashable) -> None:
        """Leave a device's run to others, as their next run."""
        if run := self._held.pop(device, None):
            self._drawn.appendleft(run)

    def is_left(self, problem: Hashable) -> bool:
        """Return whether there are items of a problem, as far as runs have been looked at."""
        return any(run and self._problem_of(run[0]) == problem for run in self._known())

    def has_runs(self) -> bool:
        """Return whether there are runs that no device holds."""
        if not self._drawn and (run := next(self._runs, None)):
            self._drawn.append(run)
        return bool(self._drawn or self._late)

    def add(self, item: Item) -> None:
        """Add an item behind others of its problem, and have their run come before others.

        All items to come are taken, so that a problem has one run.
        """
        self._drawn.extend(self._runs)
        problem = self._problem_of(item)
        for run in (*self._held.values(), *self._late):
            if run and self._problem_of(run[-1]) == problem:
                run.append(item)
                return
        run = next((run for run in self._drawn if self._problem_of(run[-1]) == problem), None)
        if run is None:
            run = deque[Item]()
        else:
            self._drawn.remove(run)
        run.append(item)
        self._late.append(run)

    def _known(self) -> list[deque[Item]]:
        """Return all runs but those to come."""
        return [*self._held.values(), *self._drawn, *self._late]

    def _added_to(self, device: Hashable) -> int | None:
        """Return the index of the added run of the problem that a device took last."""
        problems = [self._problem_of(run[0]) for run in self._late]
        last = self._last.get(device)
        return problems.index(last) if last in problems else None

    def _next_run(self, device: Hashable, besides: Collection[Hashable]) -> deque[Item]:
        """Return the next run for a device: one with added items, of its own problem if any is."""
        number = self._added_to(device)
        if number is not None and self._is_free(self._late[number], besides):
            return self._late.pop(number)
        run = next((each for each in self._late if self._is_free(each, besides)), None)
        if run is not None:
            self._late.remove(run)
            return run
        while not any(self._is_free(run, besides) for run in self._drawn):
            if (drawn := next(self._runs, None)) is None:
                return deque[Item]()
            self._drawn.append(drawn)
        run = next(each for each in self._drawn if self._is_free(each, besides))
        self._drawn.remove(run)
        return run

    def drop(self, problem: Hashable) -> list[Item]:
        """Take all items of a problem out of the runs, but not of runs to come; return them."""
        dropped: list[Item] = []
        for run in self._known():
            dropped += [item for item in run if self._problem_of(item) == problem]
            kept = [item for item in run if self._problem_of(item) != problem]
            run.clear()
            run.extend(kept)
        self._late = [run for run in self._late if run]
        self._drawn = deque(run for run in self._drawn if run)
        return dropped
