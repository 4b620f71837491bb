"""A Ctrl-C is heard though somebody swallowed it, and none where there was none."""

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


def test_it_is_raised_at_once() -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_one_that_was_swallowed_is_raised_by_the_next_check() -> None:
    interrupt.check()
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt.check()


def test_who_listens_anew_hears_only_what_comes_then() -> None:
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    interrupt.listen()
    interrupt.check()
