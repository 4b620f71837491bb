"""Which candidates are built ahead, and when: no more than will soon be judged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from cudal1.candidate import Candidate
from cudal1.harness.progress import Failure
from cudal1.problem import Problem

Item = TypeVar("Item")
WINDOW = 8
"""What may be built and not judged yet, beyond two for each that compiles: what was built is kept
in a folder that has an end."""


class Compiles(Protocol):
    """Compiles candidates ahead: `builder` on this machine, `cluster_builder` on several."""

    @property
    def num_workers(self) -> int:
        """How many compile side by side."""
        ...

    @property
    def complaint(self) -> str:
        """Why nothing is built ahead any more."""
        ...

    def make_room(self, *, wanted: bool) -> None:
        """Say whether somebody measures now: most workers wait with what they have not begun."""
        ...

    def takes(self, candidate: Candidate) -> bool:
        """Whether it is worth building one ahead: it may compile, and has not been built."""
        ...

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        """Build one when its turn comes, once: what a compiler says of it, or None."""
        ...

    def pass_over(self, candidate: Candidate) -> None:
        """Build one no more, if that has not begun."""
        ...

    def content(self, candidate: Candidate) -> bytes:
        """What was compiled for one; empty where nothing is known."""
        ...

    def serves(self, machine: str) -> bool:
        """Whether what it builds is of use there; this machine has no name."""
        ...


def window(builder: Compiles) -> int:
    """How many may be built, or be being built, that are not judged yet."""
    return WINDOW + 2 * builder.num_workers


class Ahead(Generic[Item]):
    """What is to be built, is being built, or was and waits for a judge.

    Args:
        builder: open; without one nothing is built.
        pair_of: what of an item is built, and for which problem.
    """

    def __init__(
        self, builder: Compiles | None, pair_of: Callable[[Item], tuple[Problem, Candidate]]
    ) -> None:
        self._builder = builder
        self._pair_of = pair_of
        self._left: deque[Item] = deque()
        self._ready: set[str] = set()
        """Candidates that were built and are not judged."""
        self.building: dict[Future[Failure | None], Item] = {}

    def divert(self, items: Iterable[Item]) -> Iterable[Item]:
        """Keep those that are worth building, and pass the others on."""
        builder = self._builder
        if builder is None:
            return items
        rest: list[Item] = []
        for item in items:
            worthy = builder.takes(self._candidate_of(item))
            (self._left if worthy else rest).append(item)
        self._begin()
        return rest

    def finished(self, done: Iterable[object]) -> list[tuple[Item, Failure | None]]:
        """Those of what is done that were built, or why they cannot be."""
        found: list[tuple[Item, Failure | None]] = []
        for future in [each for each in self.building if each in set(done)]:
            item = self.building.pop(future)
            self._ready.add(self._candidate_of(item).id)
            # an error of ours costs the build, no candidate
            failure = future.result() if future.exception() is None else None
            found.append((item, failure))
        return found

    def content(self, item: Item, machine: str) -> bytes:
        """What was compiled for one that is about to be judged on a machine."""
        self.forget(item)
        if self._builder is None or not self.serves(machine):
            return b""
        return self._builder.content(self._candidate_of(item))

    def serves(self, machine: str) -> bool:
        """Whether what was built, or cannot be, says something there."""
        return self._builder is not None and self._builder.serves(machine)

    def forget(self, item: Item) -> None:
        """It is judged, or will not be."""
        self._ready.discard(self._candidate_of(item).id)
        self._begin()

    def drop(self, is_meant: Callable[[Item], bool]) -> list[Item]:
        """Give some up."""
        dropped = [item for item in self.building.values() if is_meant(item)]
        self.building = {f: item for f, item in self.building.items() if not is_meant(item)}
        for item in dropped:
            if self._builder is not None:
                self._builder.pass_over(self._candidate_of(item))
        dropped += [item for item in self._left if is_meant(item)]
        self._left = deque(item for item in self._left if not is_meant(item))
        self._begin()
        return dropped

    def _begin(self) -> None:
        if self._builder is None:
            return
        most = window(self._builder)
        while self._left and len(self.building) + len(self._ready) < most:
            item = self._left.popleft()
            self.building[self._builder.begin(*self._pair_of(item))] = item

    def _candidate_of(self, item: Item) -> Candidate:
        return self._pair_of(item)[1]
