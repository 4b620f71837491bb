"""Tests that Prefect gets log lines at a bounded rate, for any number of judged candidates."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tasks.reproduce import _environment, short_name
from tasks.server import relay as module
from tasks.server.prefect_home import without_proxies
from tasks.server.relay import LINES_AT_ONCE, SECONDS_A_LINE, Relay

ROOT = Path(__file__).parents[2]


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def heard(clock: Clock, num_lines: int, *, seconds: float) -> list[str]:
    """Return what a task run logs of a stage that prints so many lines in so many seconds."""
    lines: list[str] = []
    with Relay(lines.append, lambda share, what: None, now=clock) as relay:
        for index in range(num_lines):
            relay.take(f"candidate {index} crashed")
            clock.time_s += seconds / num_lines
    return lines


def test_ten_thousand_candidates_cost_no_more_lines_than_a_hundred(clock: Clock) -> None:
    few, many = heard(clock, 100, seconds=60), heard(clock, 10_000, seconds=60)
    allowed = LINES_AT_ONCE + 60 / SECONDS_A_LINE
    assert len(few) <= 2 * allowed + 2  # each with a note on the omitted lines
    assert len(many) <= 2 * allowed + 2


def test_output_at_a_persons_pace_is_shown_in_full(clock: Clock) -> None:
    assert len(heard(clock, 20, seconds=1)) == 20
    assert len(heard(clock, 500, seconds=500 * SECONDS_A_LINE)) == 500


def test_omitted_lines_are_counted(clock: Clock) -> None:
    shown = heard(clock, 1000, seconds=1)
    assert shown[-1] == f"({1000 - LINES_AT_ONCE} lines are only in the worker's output)"


class Ticking(threading.Event):
    """A clock that makes its caller wait until the test lets time pass."""

    def __init__(self) -> None:
        super().__init__()
        self._ticks = threading.Semaphore(0)

    def tick(self) -> None:
        self._ticks.release()

    def set(self) -> None:
        super().set()
        self.tick()

    def wait(self, timeout: float | None = None) -> bool:
        self._ticks.acquire()
        return self.is_set()


def test_a_bar_shows_only_the_latest_share() -> None:
    shown: list[tuple[float, str]] = []
    has_shown = threading.Event()

    def show(share: float, what: str) -> None:
        shown.append((share, what))
        has_shown.set()

    relay = Relay(lambda line: None, show)
    relay._bar._ended = ended = Ticking()
    with relay:
        for done in range(1, 1001):
            relay.take(f"candidates: {done} of 1000")
        ended.tick()
        assert has_shown.wait(60)
    assert shown == [(1.0, "candidates: 1000 of 1000"), (1.0, "done")]


def test_a_server_that_does_not_answer_delays_no_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SECONDS_A_BAR", 0.01)
    monkeypatch.setattr(module, "LAST_WORD_S", 0.1)
    asked, answered = threading.Event(), threading.Event()

    def never_answer(share: float, what: str) -> None:
        asked.set()
        answered.wait()

    lines: list[str] = []
    with Relay(lines.append, never_answer) as relay:
        relay.take("candidates: 1 of 3")
        assert asked.wait(60)
        relay.take("candidates: 2 of 3")
    answered.set()
    assert lines == ["candidates: 1 of 3", "candidates: 2 of 3"]


def test_a_stage_has_no_variables_of_prefect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    given = _environment(Path("reason"))
    assert [name for name in given if name.startswith("PREFECT")] == []


def test_a_stage_has_the_proxies_that_prefect_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    aside = without_proxies({"https_proxy": "http://proxy:1", "NO_PROXY": "inside"})
    assert "https_proxy" not in aside
    for name, value in aside.items():
        monkeypatch.setenv(name, value)
    given = _environment(Path("reason"))
    assert given["https_proxy"] == "http://proxy:1"
    assert given["NO_PROXY"] == given["no_proxy"] == "inside,localhost,127.0.0.1,::1"


@pytest.mark.slow
def test_no_stage_loads_prefect() -> None:
    names = "problems policy generate filter sft selfsup rl search transfer report "
    names += "night.champion night.lessons night.challenger night.duel night.promote"
    code = (
        "import importlib, sys\n"
        f"for name in {names.split()!r}: importlib.import_module(f'tasks.{{name}}')\n"
        "print('prefect' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "False"


def test_a_stage_of_the_night_has_its_own_name() -> None:
    assert (short_name("flows/night/dvc.yaml:duel"), short_name("selfsup@r1")) == (
        "duel",
        "selfsup@r1",
    )
