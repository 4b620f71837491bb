"""Relay a running stage's lines to Prefect at a bounded rate.

The stage itself knows nothing of Prefect. As many lines as a person would read are logged in the
task run. The rest is counted, and stands in the terminal. Lines such as `answers: 34 of 96, 40 s so
far` move a progress bar. An absent server delays nothing: what it would have been told is lost.
"""

from __future__ import annotations

import contextvars
import re
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

LINES_AT_ONCE = 30
"""Lines that are logged as they come, before the rate is limited."""
SECONDS_A_LINE = 3.0
"""Seconds for each further line."""
SECONDS_A_BAR = 10.0
"""Seconds between two moves of the progress bar."""
LAST_WORD_S = 5.0
"""Seconds to wait for the bar to be filled at the end."""
_DONE = re.compile(r"(?P<what>.+): (?P<done>\d+) of (?P<total>\d+)(, .+)?$")


class Relay:
    """A context manager that takes every line of a stage.

    Args:
        log: gets a line to show.
        show: gets the share that is done, 0 to 1, and of what; called from a thread of its own.
        now: the clock, seconds.
    """

    def __init__(
        self,
        log: Callable[[str], None],
        show: Callable[[float, str], None],
        *,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._bar = _Bar(show)
        self._now = now
        self._credit = float(LINES_AT_ONCE)
        self._last = now()
        self._num_left_out = 0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bar.stop(is_done=error is None)
        self._say_what_was_left_out()

    def take(self, line: str) -> None:
        """Show a line, if there have not been too many."""
        found = _DONE.match(line)
        if found and int(found["total"]):
            self._bar.move(int(found["done"]) / int(found["total"]), line)
        now = self._now()
        self._credit = min(LINES_AT_ONCE, self._credit + (now - self._last) / SECONDS_A_LINE)
        self._last = now
        if self._credit < 1:
            self._num_left_out += 1
            return
        self._credit -= 1
        self._say_what_was_left_out()
        self._log(line)

    def _say_what_was_left_out(self) -> None:
        if self._num_left_out:
            self._log(f"({self._num_left_out} lines are only in the worker's output)")
            self._num_left_out = 0


class _Bar:
    """A thread that shows the latest share now and then: the server may be slow, or away."""

    def __init__(self, show: Callable[[float, str], None]) -> None:
        self._show = show
        self._latest: tuple[float, str] | None = None
        self._is_done = False
        self._ended = threading.Event()
        # the thread must know the task run that it speaks for
        self._thread = threading.Thread(
            target=contextvars.copy_context().run, args=(self._run,), daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def move(self, share: float, what: str) -> None:
        self._latest = (share, what)

    def stop(self, *, is_done: bool) -> None:
        self._is_done = is_done
        self._ended.set()
        self._thread.join(LAST_WORD_S)

    def _run(self) -> None:
        shown = None
        while not self._ended.wait(SECONDS_A_BAR):
            latest = self._latest
            if latest is not None and latest != shown:
                self._show(*latest)
                shown = latest
        if shown is not None and self._is_done:
            self._show(1.0, "done")
