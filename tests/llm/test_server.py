"""Tests of the reason in a server's log; test_vllm.py covers other parts of servers."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cudal1.llm import server
from cudal1.llm.server import HOST, free_port, reason_in


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("", "it said nothing"),
        ("loading\n\nloaded\n", "loaded"),
        ("Traceback …\n  File …\nValueError: no heads\nbye\n", "ValueError: no heads"),
        ("struct.error: 8 bytes wanted\n", "struct.error: 8 bytes wanted"),
        ("(Worker pid=1) ERROR 11-23 [a.py:1] RuntimeError: no\n", "RuntimeError: no"),
        ("ValueError: no\n(Front) WARNING 11-23 such as `OSError: x`\n", "ValueError: no"),
        ("ValueError: no\nEngineDeadError: see the trace above\n", "ValueError: no"),
        (
            "a.ValidationError: 1 error\n  Value error, too long\n    more\n",
            "a.ValidationError: 1 error Value error, too long",
        ),
        ("ValueError: shown\nkilled by SIGKILL\n", "killed by SIGKILL"),
    ],
)
def test_the_reason_is_the_last_line_that_gives_one(log: str, reason: str) -> None:
    assert reason_in(log) == reason


def test_a_free_port_is_outside_the_kernels_range_for_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text("21000\t60999\n")
    monkeypatch.setattr(server, "_KERNELS_PORTS", tmp_path / "range")
    found = {free_port() for _ in range(50)}
    assert max(found) < 21000
    assert len(found) > 30


def test_a_server_can_listen_at_a_free_port() -> None:
    with socket.socket() as listener:
        listener.bind((HOST, free_port()))
