"""Who asks to be alone is, and soon; nobody waits for ever."""

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
    """Somebody more comes to the same room, and may go in."""
    (tmp_path / "door").touch()
    (tmp_path / "room").touch()
    return lambda: Turns(door=tmp_path / "door", room=tmp_path / "room")


@pytest.fixture
def begin() -> Callable[[Callable[[], None]], threading.Event]:
    """Do something meanwhile; what is returned is set when it is done."""

    def begun(work: Callable[[], None]) -> threading.Event:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        threading.Thread(target=run, daemon=True).start()
        return done

    return begun


def _enter_and_leave(*contexts: Callable[[], AbstractContextManager[None]]) -> Callable[[], None]:
    """Enter all of them, one in the other, and leave again."""

    def work() -> None:
        if contexts:
            with contexts[0]():
                _enter_and_leave(*contexts[1:])()

    return work


def test_two_may_be_together(enter: Enter) -> None:
    ours, theirs = enter(), enter()
    with ours.together(), theirs.together():
        pass


def test_who_wants_to_be_alone_waits_for_the_other_and_newcomers_wait_for_it(
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


def test_nobody_enters_while_one_is_alone(
    enter: Enter, begin: Callable[[Callable[[], None]], threading.Event]
) -> None:
    ours, theirs = enter(), enter()
    with ours.together():
        with ours.alone():
            entered = begin(_enter_and_leave(theirs.together))
            assert not entered.wait(NOT_YET_S)
        assert entered.wait(SOON_S)


def test_two_that_want_to_be_alone_do_not_wait_for_each_other(
    enter: Enter, begin: Callable[[Callable[[], None]], threading.Event]
) -> None:
    ours, theirs = enter(), enter()
    with ours.together():
        other = begin(_enter_and_leave(theirs.together, theirs.alone))
        with ours.alone():
            pass
    assert other.wait(SOON_S)
