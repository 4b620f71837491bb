"""A Ctrl-C that is not lost.

Python raises KeyboardInterrupt wherever the main thread is. Libraries written in C clear errors
that they do not expect; PyTorch does so during its imports. Then the work would go on in spite of
the Ctrl-C. So the signal is remembered, and checked between two candidates.
"""

from __future__ import annotations

import signal
from types import FrameType

_has_come = False


def listen() -> None:
    """Remember each later Ctrl-C, besides raising KeyboardInterrupt; call it in the main thread."""
    global _has_come
    _has_come = False
    signal.signal(signal.SIGINT, _hear)


def check() -> None:
    """Raise KeyboardInterrupt if Ctrl-C was pressed, even if it was raised already."""
    if _has_come:
        raise KeyboardInterrupt


def _hear(_signal: int, _frame: FrameType | None) -> None:
    global _has_come
    _has_come = True
    raise KeyboardInterrupt
