"""Shows progress: a bar in a terminal, a plain line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cudal1.cli import waiting
from cudal1.cli.ending import say


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[], None]]:
    """Yield a function to call when one of `total` is done; show progress on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        with lines(what, total, say) as advance:
            yield lambda: advance(1)
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


@contextmanager
def lines(what: str, total: int, say: Callable[[str], None]) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many more are done; say now and then how far it has come."""
    done, begun = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done
        done += count

    def tell() -> None:
        if done < total:
            say(waiting.counted(what, done, total, time.monotonic() - begun))

    with waiting.telling(tell):
        yield advance
