"""Show progress of long steps: a bar in a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tasks.stage import log

LOG_EVERY_S = 15.0


@contextmanager
def progress(what: str, total: int) -> Generator[Callable[[int], None]]:
    """Yield a function that takes how many more of `what` are done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield _line_logger(what, total)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda count: bars.advance(bar, count)


def _line_logger(what: str, total: int) -> Callable[[int], None]:
    done = 0
    last = time.monotonic()

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        now = time.monotonic()
        if now - last >= LOG_EVERY_S:
            last = now
            log.info("%s: %d of %d", what, done, total)

    return advance
