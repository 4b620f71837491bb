"""Tests that progress in a terminal is a bar, and in a log plain lines."""

from __future__ import annotations

import pytest

from cudal1.cli import bar as module
from cudal1.cli.bar import bar


def shown(capsys: pytest.CaptureFixture[str]) -> str:
    with bar("judging", 3) as advance:
        for _ in range(3):
            advance()
    return capsys.readouterr().err


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)


def test_a_log_gets_plain_lines_until_the_last_item(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOG_EVERY_S", 0.0)
    assert shown(capsys) == "judging: 1 of 3\njudging: 2 of 3\n"


def test_a_quick_run_writes_nothing_to_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys) == ""


def test_a_terminal_gets_a_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in shown(capsys)
