"""A forked process answers for its object, and all its effects end with it."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.errors import SuiteError, WorkerError
from cudal1.harness.reference.forked import Ended, Forked


class Thing:
    """An object that a test can make do anything."""

    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int, *, times: int = 1) -> int:
        self.count += number * times
        return self.count

    def call(self, text: str) -> object:
        scope: dict[str, object] = {"os": os, "sys": sys, "ctypes": ctypes}
        exec(text, scope)
        return scope.get("result")


@pytest.fixture
def forked() -> Forked:
    return Forked(Thing)


def test_methods_are_called_on_one_object(forked: Forked) -> None:
    assert [forked.ask("add", 2), forked.ask("add", 3, times=2)] == [2, 8]
    forked.close()


def test_changes_in_the_process_end_with_it(forked: Forked) -> None:
    forked.ask("call", "sys.setrecursionlimit(77); os.environ['MINE'] = '1'; os.chdir('/')")
    forked.close()
    assert sys.getrecursionlimit() != 77
    assert "MINE" not in os.environ


def test_the_process_prints_nowhere(forked: Forked, capfd: pytest.CaptureFixture[str]) -> None:
    forked.ask("call", "print('x', flush=True); ctypes.CDLL(None).puts(b'y'); os.write(2, b'z')")
    forked.ask("call", "ctypes.CDLL(None).fflush(None)")
    forked.close()
    assert capfd.readouterr() == ("", "")


def test_the_process_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    forked = Forked(Thing)
    assert forked.ask("call", "result = 'OPENAI_API_KEY' in os.environ") is False
    forked.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("os._exit(3)", "ends its process (exit status 3)"),
        ("sys.exit(4)", "ends its process (exit status 4)"),
        ("os.kill(os.getpid(), 9)", "crashes (SIGKILL)"),
        ("os.kill(os.getpid(), 14)", "does not return within"),
        ("os.kill(os.getpid(), 19)", "stops its process"),
        ("os.closerange(3, 200)", "ends its process"),
    ],
)
def test_the_end_of_the_process_is_reported_at_each_question(
    forked: Forked, text: str, said: str
) -> None:
    for _ in range(2):
        with pytest.raises(Ended) as ended:
            forked.ask("call", text)
        assert said in str(ended.value)
    forked.close()


def test_errors_of_the_object_are_raised_as_ours(forked: Forked) -> None:
    ours = "from cudal1.errors import SuiteError\nraise SuiteError('ours')"
    odd = "class Odd(Exception):\n    __str__ = None\nraise Odd"
    for text, kind, said in (
        (ours, SuiteError, "ours"),
        ("raise KeyError('k')", WorkerError, "KeyError: 'k'"),
        (odd, WorkerError, "Odd"),
        ("raise RuntimeError('out of memory')", MemoryError, "out of memory"),
    ):
        with pytest.raises(kind, match=said):
            forked.ask("call", text)
    assert forked.ask("add", 1) == 1
    forked.close()


def _fails() -> Thing:
    raise SuiteError("cannot be made")


def _ends() -> Thing:
    os._exit(5)


@pytest.mark.parametrize(("make", "kind"), [(_fails, SuiteError), (_ends, Ended)])
def test_an_object_that_cannot_be_made_leaves_nothing_behind(
    make: Callable[[], Thing],
    kind: type[Exception],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(kind):
        Forked(make)
    assert list(tmp_path.iterdir()) == []


def test_killing_ends_the_process_and_removes_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    forked = Forked(Thing)
    process = forked.ask("call", "open('left', 'w').close(); result = os.getpid()")
    assert len(list(tmp_path.glob("*/left"))) == 1
    forked.kill()
    forked.kill()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int(str(process)), 0)


SLOW = "import time; time.sleep(100)"


def test_an_answer_that_does_not_come_ends_the_process() -> None:
    forked = Forked(Thing, answer_limit_s=0.2)
    with pytest.raises(Ended, match=r"gives no answer within 0\.2 s"):
        forked.ask("call", SLOW)
    with pytest.raises(Ended):
        forked.ask("add", 1)


@pytest.mark.parametrize("busy", [SLOW, "while True: pass", "re.match('(a+)+$', 'a' * 50 + 'b')"])
def test_an_answer_that_does_not_come_is_reported_with_the_calls_that_it_waits_for(
    busy: str,
) -> None:
    forked = Forked(Thing, answer_limit_s=0.2)
    with pytest.raises(Ended, match=r"; it is in .*, called by call \(test_forked\.py:\d+\)"):
        forked.ask("call", f"import re\ndef hang():\n {busy}\nhang()")


def test_a_process_that_hides_what_it_is_doing_is_ended_all_the_same() -> None:
    forked = Forked(Thing, answer_limit_s=0.2)
    hidden = "import signal; signal.signal(signal.SIGUSR2, signal.SIG_IGN)"
    with pytest.raises(Ended, match=r"gives no answer within 0\.2 s$"):
        forked.ask("call", f"{hidden}\n{SLOW}")


class Lingering(Thing):
    """An object that is slow to close."""

    def close(self) -> None:
        self.call(SLOW)


def test_a_process_that_does_not_close_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudal1.harness.reference.forked.CLOSE_LIMIT_S", 0.2)
    forked = Forked(Lingering)
    forked.close()
    with pytest.raises(Ended):
        forked.ask("add", 1)


@pytest.mark.slow
def test_an_answer_that_only_begins_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cudal1.harness.reference.forked.STALL_LIMIT_S", 1)
    forked = Forked(Thing)
    scribbling = "for fd in range(3, 1024):\n try: os.write(fd, b'{\"gW')\n except OSError: pass\n"
    with pytest.raises(Ended, match="gives no answer that can be read"):
        forked.ask("call", f"{scribbling}{SLOW}")
    forked.close()
