"""Keep a question to a problem's pool, and its answer: `pools` asks, `isolated` waits."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol

from cudal1.harness.judgement import Judgement
from cudal1.problem import Problem


@dataclass(frozen=True)
class Asked:
    """A question to a problem's pool."""

    problem: Problem
    name: str
    """The name of the pool's method."""
    arguments: tuple[Any, ...]
    named: dict[str, Any]
    width: int = 1
    """Number of the device's lanes that it takes up, for it needs the memory of so many."""


class Answering(Protocol):
    """A source of answers (`pools.Pools`)."""

    def awaited(self, pending: Pending) -> Collection[int]:
        """Return descriptors of which one can be read before an answer is known."""
        ...

    def until(self, pending: Pending) -> float:
        """Return when to look in any case, by the monotonic clock."""
        ...

    def go_on(self) -> None:
        """Do what can be done without waiting."""
        ...


class Pending:
    """The judgement of a candidate, once it is known (`isolated.Later`)."""

    def __init__(self, pools: Answering, asked: Asked) -> None:
        self.asked = asked
        self.num_tries = 0
        self._pools = pools
        self._said: Judgement | None = None
        self._error: Exception | None = None

    def awaited(self) -> Collection[int]:
        """Return descriptors of the processes that have to answer before the judgement is known."""
        return self._pools.awaited(self)

    def until(self) -> float:
        """Return when the first of these processes is given up, by the monotonic clock."""
        return self._pools.until(self)

    def is_known(self) -> bool:
        """Go on with what all lanes have to do; return whether the judgement is known."""
        self._pools.go_on()
        return self._said is not None or self._error is not None

    def settle(self, said: Judgement | None, error: Exception | None = None) -> None:
        """Take the judgement, or the error that came instead."""
        self._said, self._error = said, error

    def result(self) -> Judgement:
        """Return the judgement; wait for it if need be.

        Raises:
            SuiteError: the problem cannot be judged.
            DeviceLostError: the device computes no more, in a fresh process either.
            WorkerError: our own machinery failed.
        """
        while not self.is_known():
            wait(list(self.awaited()), max(0.0, self.until() - time.monotonic()))
        if self._error is not None:
            raise self._error
        assert self._said is not None
        return self._said
