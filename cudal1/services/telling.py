"""Tell people how long something takes: now and then while it goes on, and in words for people."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psutil

SAY_EVERY_S = 15.0
"""Seconds between two lines where there is no terminal."""


@contextmanager
def lines(what: str, total: int, say: Callable[[str], None]) -> Iterator[Callable[[int], None]]:
    """Yield a function that takes how many more are done; say now and then how far it has come."""
    done, begun = 0, time.monotonic()

    def advance(count: int) -> None:
        nonlocal done
        done += count

    def tell() -> None:
        if done < total:
            say(counted(what, done, total, time.monotonic() - begun))

    with telling(tell):
        yield advance


@contextmanager
def telling(tell: Callable[[], None]) -> Iterator[None]:
    """Call `tell` every `SAY_EVERY_S` seconds from a thread of its own, until the context ends."""
    ended = threading.Event()

    def go_on() -> None:
        while not ended.wait(SAY_EVERY_S):
            tell()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def counted(what: str, done: int, total: int, seconds: float) -> str:
    """Return how far some work has come, as a line that says what may be left of it."""
    left = f", about {duration(seconds / done * (total - done))} left" if 0 < done < total else ""
    return f"{what}: {done} of {total}{left or f', {duration(seconds)} so far'}"


def duration(seconds: float) -> str:
    """Return a time for people: `8 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min" + (f" {whole % 60} s" if whole % 60 else "")
    minutes = round(seconds / 60)
    return f"{minutes // 60} h" + (f" {minutes % 60} min" if minutes % 60 else "")


def process_s() -> float:
    """Return the seconds that this process has run."""
    return max(0.0, time.time() - psutil.Process().create_time())
