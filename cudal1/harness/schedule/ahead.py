"""Choose the candidates that are built ahead: no more than will soon be judged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from cudal1.candidate import Candidate
from cudal1.harness.exchange.failure import Failure
from cudal1.problem import Problem

Item = TypeVar("Item")
WINDOW = 8
"""Number of candidates that may be built and not judged yet, beyond two for each worker that
compiles. Builds are kept in a folder of limited size."""


class Compiles(Protocol):
    """A compiler of candidates ahead: `builder` on this machine, `cluster_builder` on several."""

    @property
    def num_workers(self) -> int:
        """The number of candidates that compile side by side."""
        ...

    @property
    def complaint(self) -> str:
        """The reason why nothing is built ahead; empty while candidates are."""
        ...

    def make_room(self, *, wanted: bool) -> None:
        """Set whether a device measures; most workers then wait with what they have not begun."""
        ...

    def takes(self, candidate: Candidate) -> bool:
        """Return whether to build a candidate ahead: it may compile, and has not been built."""
        ...

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        """Build a candidate once, in its turn; the result is the compiler's failure or None."""
        ...

    def pass_over(self, candidate: Candidate) -> None:
        """Cancel the build of a candidate, if it has not begun."""
        ...

    def content(self, candidate: Candidate) -> bytes:
        """Return what was compiled for a candidate; empty where nothing is known."""
        ...

    def serves(self, machine: str) -> bool:
        """Return whether builds are of use on a machine; this machine has no name."""
        ...


def window(builder: Compiles) -> int:
    """Return how many candidates may be built, or in building, and not judged yet."""
    return WINDOW + 2 * builder.num_workers


class Ahead(Generic[Item]):
    """The items that are to be built, are being built, or are built and wait for a judge.

    Args:
        builder: open; without one nothing is built.
        pair_of: returns the problem and the candidate of an item.
    """

    def __init__(
        self, builder: Compiles | None, pair_of: Callable[[Item], tuple[Problem, Candidate]]
    ) -> None:
        self._builder = builder
        self._pair_of = pair_of
        self._left: deque[Item] = deque()
        self._ready: set[str] = set()
        """Ids of candidates that were built and are not judged."""
        self.building: dict[Future[Failure | None], Item] = {}

    def divert(self, items: Iterable[Item]) -> Iterable[Item]:
        """Keep the items that are worth building, and return the others."""
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
        """Return the finished builds among what is done, each with its failure or None."""
        found: list[tuple[Item, Failure | None]] = []
        for future in [each for each in self.building if each in set(done)]:
            item = self.building.pop(future)
            self._ready.add(self._candidate_of(item).id)
            # an error of ours costs the build, no candidate
            failure = future.result() if future.exception() is None else None
            found.append((item, failure))
        return found

    def content(self, item: Item, machine: str) -> bytes:
        """Return what was compiled for an item that is about to be judged on a machine."""
        self.forget(item)
        if self._builder is None or not self.serves(machine):
            return b""
        return self._builder.content(self._candidate_of(item))

    def serves(self, machine: str) -> bool:
        """Return whether builds and their failures say anything about a machine."""
        return self._builder is not None and self._builder.serves(machine)

    def forget(self, item: Item) -> None:
        """Forget an item that is judged, or will not be."""
        self._ready.discard(self._candidate_of(item).id)
        self._begin()

    def drop(self, is_meant: Callable[[Item], bool]) -> list[Item]:
        """Give up the items that are meant and not built; return them."""
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
