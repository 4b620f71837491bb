"""Tests of the time that stages take: what is expected, kept, and added up at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.server import pace as module
from tasks.server.pace import Pace, forget_latest, latest, took


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "FILE", tmp_path / "data" / "seconds.json")
    return tmp_path / "data" / "seconds.json"


def test_a_stage_has_its_place_among_all() -> None:
    pace = Pace(["problems", "sft", "rl"])
    assert [pace.place(stage) for stage in ("problems", "rl")] == ["1 of 3", "3 of 3"]


def test_stages_that_never_ran_have_no_expected_time() -> None:
    clock = Clock()
    pace = Pace(["problems", "sft"], now=clock)
    clock.seconds = 90.0
    assert pace.so_far("sft") == "1 min 30 s so far"


def test_a_second_run_expects_what_the_first_took() -> None:
    first = Pace(["problems", "sft", "rl"])
    for stage, seconds in (("problems", 10.0), ("sft", 90.0), ("rl", 200.0)):
        first.add(stage, seconds)
    clock = Clock()
    second = Pace(["problems", "sft", "rl"], now=clock)
    clock.seconds = 12.0
    assert second.so_far("sft") == "12 s so far, about 4 min 50 s left"


def test_the_latest_run_has_its_own_stages_alone() -> None:
    Pace(["problems", "sft"]).add("problems", 10.0)
    forget_latest()
    assert latest() == {}
    Pace(["problems", "sft"]).add("sft", 90.0)
    assert latest() == {"sft": 90.0}
    assert Pace(["problems", "sft"]).so_far("problems") == "0 s so far, about 1 min 40 s left"


def test_a_file_that_a_kill_cut_off_costs_the_estimate_alone(file: Path) -> None:
    file.parent.mkdir()
    file.write_text('{"known": {"sft"')
    assert Pace(["sft"]).so_far("sft") == "0 s so far"
    assert latest() == {}


def test_all_that_was_waited_for_is_in_some_part() -> None:
    assert took(200.0, {"problems": 10.0, "sft": 150.0, "rl": 1.0}) == (
        "took 3 min 20 s: 10 s problems, 2 min 30 s sft, "
        "40 s for the rest, such as starting programs"
    )
    assert took(8.0, {}) == "took 8 s"
