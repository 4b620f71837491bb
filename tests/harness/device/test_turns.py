"""Many judges use one device, one alone times, and a judge that waits to time is let in."""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.synchronize import Event
from typing import Any

import pytest

from cudal1.harness.device import turns as module
from cudal1.harness.device.turns import Turns, TurnsFile

LIMIT_S = 60.0
FORK = multiprocessing.get_context("fork")


@pytest.fixture
def file() -> Iterator[TurnsFile]:
    with closing(TurnsFile(4)) as opened:
        yield opened


@pytest.fixture
def beside(file: TurnsFile) -> Iterator[Callable[..., Any]]:
    """Return a function that runs another with turns of its own in another process."""
    begun: list[Any] = []

    def run(function: Callable[..., None], *arguments: Any) -> Any:
        def alone() -> None:
            status = 1
            try:
                function(file.opened(), *arguments)
                status = 0
            finally:
                if status:
                    traceback.print_exc()
                    sys.stderr.flush()
                # the fork is a copy of pytest in the middle of a test: unwound, it would run
                # fixtures' ends, reports and exit handlers, which belong to the test process
                os._exit(status)

        process = FORK.Process(target=alone, daemon=True)
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


def _time_briefly(turns: Turns, has_it: Event) -> None:
    with turns.using(), turns.timing():
        has_it.set()
        time.sleep(0.1)  # longer than between two looks of a judge that waits to time


def test_several_judges_use_a_device_at_once(file: TurnsFile, beside: Callable[..., Any]) -> None:
    has_it, over = FORK.Event(), FORK.Event()
    beside(_use, has_it, over)
    assert has_it.wait(LIMIT_S)
    with file.opened().using():
        over.set()


def test_a_judge_that_times_waits_until_others_pass_the_device_on(
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


def test_no_judge_uses_a_device_while_another_times(
    file: TurnsFile, beside: Callable[..., Any]
) -> None:
    timing, using, over = FORK.Event(), FORK.Event(), FORK.Event()
    beside(_time, timing, over)
    assert timing.wait(LIMIT_S)
    beside(_use, using, over)
    assert not using.wait(0.3)
    over.set()
    assert using.wait(LIMIT_S)


def test_work_without_a_device_keeps_no_judge_from_timing(
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


def test_judges_that_want_to_time_do_so_one_after_the_other(
    file: TurnsFile, beside: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPANY", 2)
    monkeypatch.setattr(module, "COMPANY_S", LIMIT_S)
    halts: list[float] = []

    def halt() -> Callable[[], None]:
        halts.append(time.monotonic())
        return lambda: None

    turns = file.opened()
    turns.halt = halt
    timed = [FORK.Event(), FORK.Event()]
    ends = time.monotonic() + LIMIT_S
    with turns.using():
        beside(_time_briefly, timed[0])
        assert not timed[0].wait(0.3)
        assert turns.pass_on() == 0.0
        beside(_time_briefly, timed[1])
        while not all(each.is_set() for each in timed):
            turns.pass_on()
            assert time.monotonic() < ends
        assert len(halts) == 1


def test_a_judge_does_not_wait_for_company_for_long(
    file: TurnsFile, beside: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPANY_S", 0.05)
    has_it, over, turns = FORK.Event(), FORK.Event(), file.opened()
    over.set()
    ends = time.monotonic() + LIMIT_S
    with turns.using():
        beside(_time, has_it, over)
        while not has_it.is_set():
            turns.pass_on()
            assert time.monotonic() < ends


def test_a_judge_that_is_alone_waits_for_no_company(
    file: TurnsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "COMPANY_S", float("inf"))
    turns = file.opened()
    with turns.using(), turns.timing():
        assert turns.is_alone


def test_each_of_many_judges_that_time_is_alone(
    file: TurnsFile, beside: Callable[..., Any]
) -> None:
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


def test_a_judge_without_others_halts_nothing() -> None:
    turns = Turns()
    turns.halt = lambda: pytest.fail("halted")
    with turns.using():
        assert turns.is_alone
        assert turns.pass_on() == 0.0
        with turns.elsewhere(), turns.timing():
            pass
