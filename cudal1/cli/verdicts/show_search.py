"""Shows a search for one module while it runs: a live table in a terminal, plain lines elsewhere.

Threat: nothing here shows what a candidate wrote; authors' names are the user's own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from cudal1.cli.terminal.ending import printable, say
from cudal1.services.optimizing.budget import Meter
from cudal1.services.optimizing.state import State

LOG_EVERY_S = 15.0
"""Seconds between two lines in a log, unless there is a better version."""
SHOWN_EVERY_S = 0.1
"""Seconds between two pictures in a terminal."""

Shown = Callable[[State], None]


@contextmanager
def view(meter: Meter) -> Generator[Shown]:
    """Yield a function that shows a state; warnings of the search stand above the table."""
    console = Console(stderr=True)
    if not console.is_terminal:
        with _warnings_to(say):
            yield _lines(meter)
        return
    with (
        Live(console=console, transient=True, refresh_per_second=1 / SHOWN_EVERY_S) as live,
        _warnings_to(lambda line: console.print(Text(printable(line), "yellow"))),
    ):
        yield lambda state: live.update(picture(state, meter))


def picture(state: State, meter: Meter) -> Group:
    """Return the live table: authors with what became of their answers, best, and progress."""
    table = Table("author", "answers", "new programs", "correct", "best", box=None, pad_edge=False)
    for name, tally in state.tallies.items():
        best = "" if tally.best is None else f"{tally.best:.2f}x"
        judged = str(tally.statuses.total())
        table.add_row(name, str(tally.num_answers), judged, str(tally.num_correct), best)
    bar = ProgressBar(total=1.0, completed=meter.share_used, width=40)
    return Group(
        table,
        Text(f"best so far: {best_in_words(state)}", "bold"),
        bar,
        Text(f"{meter.seconds:.0f} s, {meter.num_verdicts} verdicts: {state.doing}", "dim"),
    )


def best_in_words(state: State) -> str:
    """Return the best gain so far with its author."""
    if state.best is None:
        return "no certified gain"
    return f"certified {state.best.speedup:.2f}x by {state.best.author}"


def _lines(meter: Meter) -> Shown:
    last, best = time.monotonic(), 1.0

    def shown(state: State) -> None:
        nonlocal last, best
        now = time.monotonic()
        speedup = 1.0 if state.best is None else state.best.speedup
        if speedup > best or now - last >= LOG_EVERY_S:
            last, best = now, speedup
            done = f"{meter.seconds:.0f} s, {meter.num_verdicts} verdicts"
            say(f"{done}: {best_in_words(state)}; {state.doing}")

    return shown


@contextmanager
def _warnings_to(write: Callable[[str], None]) -> Generator[None]:
    """Lead the warnings of our own log through a function while the block runs."""
    log = logging.getLogger("cudal1")
    handler = _Handler(write)
    log.addHandler(handler)
    was = log.propagate
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.propagate = was


class _Handler(logging.Handler):
    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        self._write(f"note: {record.getMessage()}")
