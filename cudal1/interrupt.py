"""A Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread is. Libraries written in C clear errors
that they do not expect, such as PyTorch those of its imports: then the work would go on as if
nobody had asked. So that somebody has is remembered, and looked at between two candidates.
"""

from __future__ import annotations

import signal
from types import FrameType

_has_come = False


def listen() -> None:
    """Remember a Ctrl-C from now on, besides raising KeyboardInterrupt; for the main thread."""
    global _has_come
    _has_come = False
    signal.signal(signal.SIGINT, _hear)


def check() -> None:
    """Raise KeyboardInterrupt if there was one, whether it was raised already or not."""
    if _has_come:
        raise KeyboardInterrupt


def _hear(_signal: int, _frame: FrameType | None) -> None:
    global _has_come
    _has_come = True
    raise KeyboardInterrupt
