"""Show progress of long steps: a bar in a terminal, a plain line now and then in a log."""

from __future__ import annotations

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

from cudal1.services.telling import lines
from tasks.stage import log


@contextmanager
def progress(what: str, total: int) -> Generator[Callable[[int], None]]:
    """Yield a function that takes how many more of `what` are done."""
    console = Console(stderr=True)
    if not console.is_terminal:
        with lines(what, total, log.info) as advance:
            yield advance
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
