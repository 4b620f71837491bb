"""Shows what a command waits for: a spinner in a terminal, a plain line now and then elsewhere.

The parts are added up, so that `took` counts all that the user has waited for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

from cudal1.cli.ending import say

SAY_EVERY_S = 15.0
"""Seconds between two lines where there is no terminal."""
STARTING = "starting"
"""The part before the first: the interpreter begins and imports."""


class Waiting:
    """The parts of a wait, one after another, each with its seconds.

    Args:
        started_s: seconds that the process had run before.
        show: is told of each new part.
        now: the clock, seconds.
    """

    def __init__(
        self,
        *,
        started_s: float = 0.0,
        show: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show
        self._now = now
        self._parts: dict[str, float] = {STARTING: started_s}
        self._part, self._since = STARTING, now()

    def begin(self, part: str) -> None:
        """End the current part and begin another."""
        self._add()
        self._part = part
        self._parts.setdefault(part, 0.0)
        self._show(part)

    def spent_s(self) -> dict[str, float]:
        """Return the seconds of each part so far, in the order of their beginning."""
        self._add()
        return dict(self._parts)

    def said(self) -> str:
        """Return the current part and its seconds, as one line."""
        seconds = self._parts[self._part] + self._now() - self._since
        return f"{self._part}: {seconds:.0f} s so far"

    def _add(self) -> None:
        now = self._now()
        self._parts[self._part] += now - self._since
        self._since = now


@contextmanager
def waiting() -> Iterator[Waiting]:
    """Yield the parts of a command's wait, which are shown on standard error."""
    from rich.console import Console

    console = Console(stderr=True)
    if console.is_terminal:
        with console.status(STARTING) as spinner:
            yield Waiting(started_s=process_s(), show=spinner.update)
        return
    found = Waiting(started_s=process_s())
    with telling(lambda: say(found.said())):
        yield found


@contextmanager
def telling(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` every `SAY_EVERY_S` seconds from a thread of its own, until the context ends."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(SAY_EVERY_S):
            tell()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def counted(what: str, done: int, total: int, seconds: float) -> str:
    """Return how far some work has come, as a line that says what may be left of it."""
    left = f", about {duration(seconds / done * (total - done))} left" if 0 < done < total else ""
    return f"{what}: {done} of {total}{left or f', {duration(seconds)} so far'}"


def duration(seconds: float) -> str:
    """Return a time for people: `8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def process_s() -> float:
    """Return the seconds that this process has run."""
    return max(0.0, time.time() - psutil.Process().create_time())
