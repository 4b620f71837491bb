"""Shows what a command waits for: a spinner in a terminal, a plain line now and then elsewhere.

The parts are added up, so that `took` counts all that the user has waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cudal1.cli.terminal.ending import say
from cudal1.services.telling import process_s, telling

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

    def move(self, seconds: float, part: str, other: str) -> None:
        """Count seconds of the current part, which turn out to be another's, as that one's."""
        self._add()
        seconds = min(seconds, self._parts[part])  # another clock's
        left = self._parts.pop(part) - seconds
        self._parts[other] = self._parts.pop(other, 0.0) + seconds
        self._parts[part] = left  # it stays the last

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
