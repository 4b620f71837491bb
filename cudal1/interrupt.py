"""A Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread is. Libraries written in C clear errors
that they do not expect, such as PyTorch those of its imports: then the work would go on as if
nobody had asked. So that somebody has is remembered, and looked at between two candidates.
"""

from __future__ import annotations

import signal
from types import FrameType

_came: int | None = None


def listen(*others: signal.Signals) -> None:
    """Remember a Ctrl-C from here on, besides raising KeyboardInterrupt; for the main thread.

    Args:
        others: signals that are taken for one, unless the process was started to ignore them.
    """
    global _came
    _came = None
    for each in (signal.SIGINT, *others):
        if each is signal.SIGINT or signal.getsignal(each) is not signal.SIG_IGN:
            signal.signal(each, _hear)


def check() -> None:
    """Raise KeyboardInterrupt if there was one, whether it was raised already or not."""
    if _came is not None:
        raise KeyboardInterrupt


def exit_code() -> int:
    """Return the exit code of a process that the signal has ended: 130 after a Ctrl-C."""
    return 128 + (_came or signal.SIGINT)


def _hear(number: int, _frame: FrameType | None) -> None:
    global _came
    _came = number
    raise KeyboardInterrupt
