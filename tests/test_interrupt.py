"""Tests that a swallowed Ctrl-C is raised again, and that none is raised without cause."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import suppress

import pytest

from cudal1 import interrupt


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    interrupt.listen()
    yield
    interrupt.listen()  # forgets
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_swallowed_interrupt_is_raised_by_the_next_check() -> None:
    interrupt.check()
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt.check()


def test_a_new_listener_hears_only_later_interrupts() -> None:
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    interrupt.listen()
    interrupt.check()
