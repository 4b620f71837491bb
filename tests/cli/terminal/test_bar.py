"""Tests that progress in a terminal is a bar, and in a log plain lines."""

from __future__ import annotations

import pytest

from cudal1.cli.terminal.bar import bar
from cudal1.services import telling


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    with bar("judging", 3) as advance:
        for _ in range(3):
            advance()
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)


def test_a_log_gets_lines_while_nothing_is_done_and_what_may_be_left(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telling, "SAY_EVERY_S", 0.001)
    said = ""
    with bar("judging", 3) as advance:
        for done in range(3):
            while f"judging: {done} of 3, " not in said:  # the thread tells it again and again
                said += capsys.readouterr().err
            advance()
    assert "judging: 0 of 3, 0 s so far\n" in said
    assert "judging: 1 of 3, about " in said
    assert "3 of 3" not in said + capsys.readouterr().err


def test_a_quick_run_writes_nothing_to_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys) == ""


def test_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in shown(capsys)
