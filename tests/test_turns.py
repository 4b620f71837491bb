"""Tests that a process gets the room alone on request and soon, and that none waits for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.turns import Turns

SOON_S = 60
NOT_YET_S = 0.3


Enter = Callable[[], Turns]


@pytest.fixture
def enter(tmp_path: Path) -> Enter:
    """Return a function that makes another visitor of the same room."""
    (tmp_path / "door").touch()
    (tmp_path / "room").touch()
    return lambda: Turns(door=tmp_path / "door", room=tmp_path / "room")


@pytest.fixture
def begin() -> Callable[[Callable[[], None]], threading.Event]:
    """Return a function that runs work in a thread; it returns an event that is set at the end."""

    def begun(work: Callable[[], None]) -> threading.Event:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        threading.Thread(target=run, daemon=True).start()
        return done

    return begun


def _enter_and_leave(*contexts: Callable[[], AbstractContextManager[None]]) -> Callable[[], None]:
    """Return work that enters all contexts, one in the other, and leaves them again."""

    def work() -> None:
        if contexts:
            with contexts[0]():
                _enter_and_leave(*contexts[1:])()

    return work


def test_two_processes_may_be_together(enter: Enter) -> None:
    ours, theirs = enter(), enter()
    with ours.together(), theirs.together():
        pass


def test_a_process_that_wants_to_be_alone_waits_for_the_other_and_comes_before_newcomers(
    enter: Enter, begin: Callable[[Callable[[], None]], threading.Event]
) -> None:
    ours, theirs, newcomer = enter(), enter(), enter()
    with ours.together():
        alone = begin(_enter_and_leave(theirs.together, theirs.alone))
        assert not alone.wait(NOT_YET_S)
        entered = begin(_enter_and_leave(newcomer.together))
        assert not entered.wait(NOT_YET_S)
    assert alone.wait(SOON_S)
    assert entered.wait(SOON_S)


def test_no_process_enters_while_another_is_alone(
    enter: Enter, begin: Callable[[Callable[[], None]], threading.Event]
) -> None:
    ours, theirs = enter(), enter()
    with ours.together():
        with ours.alone():
            entered = begin(_enter_and_leave(theirs.together))
            assert not entered.wait(NOT_YET_S)
        assert entered.wait(SOON_S)


def test_two_processes_that_want_to_be_alone_do_not_wait_for_each_other(
    enter: Enter, begin: Callable[[Callable[[], None]], threading.Event]
) -> None:
    ours, theirs = enter(), enter()
    with ours.together():
        other = begin(_enter_and_leave(theirs.together, theirs.alone))
        with ours.alone():
            pass
    assert other.wait(SOON_S)
