"""Judges of one device: many use it, one alone times, and a judge that waits for that is let in."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.synchronize import Event
from typing import Any

import pytest

from cudal1.harness.turns import Turns, TurnsFile

LIMIT_S = 60.0
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def file() -> Iterator[TurnsFile]:
    with closing(TurnsFile()) as opened:
        yield opened


@pytest.fixture
def beside(file: TurnsFile) -> Iterator[Callable[..., Any]]:
    """Run a function with turns of its own in another process."""
    begun: list[Any] = []

    def run(function: Callable[..., None], *arguments: Any) -> Any:
        process = FORK.Process(target=lambda: function(file.opened(), *arguments), daemon=True)
        process.start()
        begun.append(process)
        return process

    yield run
    for process in begun:
        process.kill()
        process.join()


def _use(turns: Turns, has_it: Event, over: Event) -> None:
    with turns.using():
        has_it.set()
        over.wait(LIMIT_S)


def _time(turns: Turns, has_it: Event, over: Event) -> None:
    with turns.using(), turns.timing():
        has_it.set()
        over.wait(LIMIT_S)


def test_several_use_a_device_at_once(file: TurnsFile, beside: Callable[..., Any]) -> None:
    has_it, over = FORK.Event(), FORK.Event()
    beside(_use, has_it, over)
    assert has_it.wait(LIMIT_S)
    with file.opened().using():
        over.set()


def test_who_times_waits_until_others_pass_the_device_on(
    file: TurnsFile, beside: Callable[..., Any]
) -> None:
    has_it, over, turns = FORK.Event(), FORK.Event(), file.opened()
    events: list[str] = []

    def halt() -> Callable[[], None]:
        events.append("halted")
        return lambda: events.append("goes on")

    turns.halt = halt
    with turns.using():
        assert turns.pass_on() == 0.0
        beside(_time, has_it, over)
        ends = time.monotonic() + LIMIT_S
        while not turns._is_wanted():
            assert time.monotonic() < ends
        assert not has_it.is_set()
        over.set()
        assert turns.pass_on() > 0.0
        assert has_it.is_set()
        assert events == ["halted", "goes on"]
    assert events == ["halted", "goes on", "halted"]  # until it uses the device again
    with turns.using():
        assert events[3:] == ["goes on"]


def test_nobody_uses_a_device_while_another_times(
    file: TurnsFile, beside: Callable[..., Any]
) -> None:
    timing, using, over = FORK.Event(), FORK.Event(), FORK.Event()
    beside(_time, timing, over)
    assert timing.wait(LIMIT_S)
    beside(_use, using, over)
    assert not using.wait(0.3)
    over.set()
    assert using.wait(LIMIT_S)


def test_what_needs_no_device_keeps_nobody_from_timing(
    file: TurnsFile, beside: Callable[..., Any]
) -> None:
    has_it, over, turns = FORK.Event(), FORK.Event(), file.opened()
    with turns.using():
        with turns.elsewhere():
            beside(_time, has_it, over)
            assert has_it.wait(LIMIT_S)
            over.set()
        assert turns._is_using


def test_a_turn_ends_with_its_process(file: TurnsFile, beside: Callable[..., Any]) -> None:
    has_it = FORK.Event()
    process = beside(_time, has_it, FORK.Event())
    assert has_it.wait(LIMIT_S)
    process.kill()
    with file.opened().using():
        pass


def test_of_many_that_time_each_is_alone(file: TurnsFile, beside: Callable[..., Any]) -> None:
    inside, most = FORK.Value("i", 0), FORK.Value("i", 0)

    def times(turns: Turns) -> None:
        for _ in range(20):
            with turns.using():
                turns.pass_on()
                with turns.timing():
                    with inside.get_lock():
                        inside.value += 1
                        most.value = max(most.value, inside.value)
                    time.sleep(0.001)
                    with inside.get_lock():
                        inside.value -= 1

    processes = [beside(times) for _ in range(4)]
    for process in processes:
        process.join(LIMIT_S)
        assert process.exitcode == 0
    assert most.value == 1


def test_where_there_are_no_others_nothing_is_halted() -> None:
    turns = Turns()
    turns.halt = lambda: pytest.fail("halted")
    with turns.using():
        assert turns.is_alone
        assert turns.pass_on() == 0.0
        with turns.elsewhere(), turns.timing():
            pass
