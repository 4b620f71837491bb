"""Shows progress: a bar in a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cudal1.cli.ending import say

LOG_EVERY_S = 15.0
"""Seconds between two lines in a log; work that ends earlier writes no line."""


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call when one of `total` is done; show progress on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _lines(what, total)
        return
    with Progress(
        "{task.description}",
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
    ) as bars:
        task = bars.add_task(what, total=total)
        yield lambda: bars.advance(task)


def _lines(what: str, total: int) -> Callable[[], None]:
    done, last = 0, time.monotonic()

    def advance() -> None:
        nonlocal done, last
        done += 1
        if done < total and (now := time.monotonic()) - last >= LOG_EVERY_S:
            last = now
            say(f"{what}: {done} of {total}")

    return advance
