"""No process that a problem's process starts outlives it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from cudal1.harness.reference.keeper import end_kept, fork_kept


def _sleeping(note: Path) -> None:
    """Write the process's id into a note, and stay."""
    note.write_text(f"{os.getpid()}")
    time.sleep(600)
    os._exit(0)


def _child(note: Path) -> None:
    if os.fork() == 0:
        _sleeping(note)


def _session(note: Path) -> None:
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _sleeping(note)
        os._exit(0)


def _run(leave: Callable[[Path], None], note: Path, end: Callable[[], object]) -> NoReturn:
    leave(note)
    while not (note.exists() and note.read_text()):
        time.sleep(0.01)
    end()
    os._exit(7)


def _is_running(note: Path) -> bool:
    try:
        return psutil.Process(int(note.read_text())).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("leave", [_child, _session])
def test_processes_that_a_problem_leaves_behind_end_with_it(
    leave: Callable[[Path], None], tmp_path: Path
) -> None:
    note = tmp_path / "pid"
    keeper = fork_kept(lambda: _run(leave, note, lambda: None))
    status = end_kept(keeper, patience_s=20)
    assert os.waitstatus_to_exitcode(status) == 7
    assert not _is_running(note)


def test_a_running_problem_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    note = tmp_path / "pid"
    keeper = fork_kept(lambda: _run(_session, note, lambda: time.sleep(600)))
    while not (note.exists() and note.read_text()):
        time.sleep(0.01)
    assert os.WTERMSIG(end_kept(keeper)) == signal.SIGKILL
    assert not _is_running(note)


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGTERM, signal.SIGALRM])
def test_a_signal_that_ends_a_problem_also_ends_its_keeper(
    number: signal.Signals, tmp_path: Path
) -> None:
    def die() -> None:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    keeper = fork_kept(lambda: _run(_child, tmp_path / "pid", die))
    assert os.WTERMSIG(end_kept(keeper, patience_s=20)) == number
    assert not _is_running(tmp_path / "pid")


def test_a_problem_that_kills_its_parent_ends_with_it(tmp_path: Path) -> None:
    note = tmp_path / "pid"

    def run() -> NoReturn:
        note.write_text(f"{os.getpid()}")
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
        os._exit(0)

    assert os.WTERMSIG(end_kept(fork_kept(run), patience_s=20)) == signal.SIGKILL
    deadline = time.monotonic() + 20
    while _is_running(note):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_stopped_keeper_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudal1.harness.reference.keeper.END_LIMIT_S", 0.2)

    def stop() -> None:
        os.kill(os.getppid(), signal.SIGSTOP)
        time.sleep(600)

    note = tmp_path / "pid"
    keeper = fork_kept(lambda: _run(lambda path: path.write_text("1"), note, stop))
    while psutil.Process(keeper).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    assert os.WTERMSIG(end_kept(keeper)) == signal.SIGKILL
