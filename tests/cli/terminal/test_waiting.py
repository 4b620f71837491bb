"""Tests that the parts of a wait add up, and that a log is told of them."""

from __future__ import annotations

import pytest

from cudal1.cli.terminal.waiting import Waiting, waiting
from cudal1.services import telling


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


@pytest.mark.parametrize(("seconds", "moved"), [(3.0, 3.0), (9.0, 7.0)])
def test_seconds_of_the_last_part_may_count_as_anothers(seconds: float, moved: float) -> None:
    clock = [100.0]
    wait = Waiting(now=lambda: clock[0])
    wait.begin("judging")
    clock[0] += 7.0
    wait.move(seconds, "judging", "trying the reference")
    clock[0] += 1.0
    spent_s = wait.spent_s()
    assert spent_s == {"starting": 0.0, "trying the reference": moved, "judging": 8.0 - moved}
    assert list(spent_s)[-1] == "judging"


def test_a_log_is_told_of_a_part_that_does_not_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(telling, "SAY_EVERY_S", 0.001)
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
    with waiting() as wait:
        assert wait.spent_s()["starting"] >= 0.01
