"""Shows progress: a bar in a terminal, a plain line now and then in a log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cudal1.cli.terminal.ending import say
from cudal1.services.telling import lines


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
