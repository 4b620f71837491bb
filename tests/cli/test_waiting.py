"""Tests that the parts of a wait add up, that a log is told, and how times are written."""

from __future__ import annotations

import pytest

from cudal1.cli import waiting as module
from cudal1.cli.waiting import Waiting, counted, duration, process_s, waiting


def test_the_parts_of_a_wait_add_up() -> None:
    clock = [100.0]
    shown: list[str] = []
    wait = Waiting(started_s=2.0, show=shown.append, now=lambda: clock[0])
    for part, seconds in (("trying the reference", 5.0), ("judging", 7.0)):
        clock[0] += 1.0
        wait.begin(part)
        clock[0] += seconds
    assert wait.spent_s() == {"starting": 3.0, "trying the reference": 6.0, "judging": 7.0}
    assert shown == ["trying the reference", "judging"]
    clock[0] += 2.0
    assert wait.said() == "judging: 9 s so far"


def test_a_log_is_told_of_a_part_that_does_not_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(module, "SAY_EVERY_S", 0.001)
    said = ""
    with waiting() as wait:
        wait.begin("judging")
        while "judging: 0 s so far\n" not in said:
            said += capsys.readouterr().err


def test_a_quick_command_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    with waiting() as wait:
        wait.begin("judging")
    assert capsys.readouterr().err == ""


def test_imports_and_the_interpreter_are_waited_for_too() -> None:
    assert process_s() > 0
    with waiting() as wait:
        assert wait.spent_s()["starting"] >= 0.01


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (96, "1 min 36 s"),
        (3599.7, "1 h"),
        (7500, "2 h 5 min"),
    ],
)
def test_times_are_written_for_people(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_what_is_left_is_said_once_something_is_done() -> None:
    assert counted("answers", 0, 4, 30.0) == "answers: 0 of 4, 30 s so far"
    assert counted("answers", 1, 4, 30.0) == "answers: 1 of 4, about 1 min 30 s left"
