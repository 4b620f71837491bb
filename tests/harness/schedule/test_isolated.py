"""An isolated process answers in order, inherits what is listed, and can be started again."""

from __future__ import annotations

import math
import operator
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from pathlib import Path
from types import ModuleType

import pytest

from cudal1 import processes
from cudal1.errors import SuiteError, WorkerError
from cudal1.harness.schedule.isolated import CALM, Isolated


@pytest.fixture
def isolated() -> Iterator[Isolated]:
    process = Isolated()
    yield process
    process.shutdown()


def test_questions_are_answered_in_their_order_by_one_process(isolated: Isolated) -> None:
    asked = [isolated.submit(math.sqrt, float(number)) for number in range(50)]
    assert [each.result() for each in asked] == [math.sqrt(number) for number in range(50)]
    assert isolated.submit(os.getpid).result() == isolated.submit(os.getpid).result()


def test_the_process_inherits_only_listed_variables_and_imports_from_nowhere_else(
    isolated: Isolated, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    names = set(isolated.submit(_environment).result())
    assert names <= {*processes.KEPT, *processes.SET, *CALM, "LC_CTYPE"}
    path = isolated.submit(_import_path).result()
    assert not {"", str(tmp_path)} & set(path)


def _environment() -> list[str]:
    return list(os.environ)


def _import_path() -> list[str]:
    return sys.path


class Odd(Exception):
    """An error that can neither be pickled nor give its text."""

    def __reduce__(self) -> str:
        raise TypeError

    def __str__(self) -> str:
        raise TypeError


def _raises_odd() -> None:
    raise Odd


def _raises_ours() -> None:
    raise SuiteError("ours")


@pytest.mark.slow
def test_an_error_is_raised_at_the_caller(isolated: Isolated) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        isolated.submit(int, "x").result()
    with pytest.raises(SuiteError, match="ours"):
        isolated.submit(_raises_ours).result()
    with pytest.raises(WorkerError, match=r"^Odd: \(its text raises TypeError\)$"):
        isolated.submit(_raises_odd).result()


def test_a_process_that_ends_breaks_all_questions_and_gives_its_last_words(
    isolated: Isolated,
) -> None:
    waiting = isolated.submit(
        eval, "__import__('os').write(2, b'gone') and __import__('os')._exit(3)"
    )
    behind = isolated.submit(os.getpid)
    for asked in (waiting, behind):
        with pytest.raises(BrokenExecutor, match=r"exit status 3\): gone"):
            asked.result()
    with pytest.raises(BrokenExecutor):
        isolated.submit(os.getpid)
    isolated.revive()
    assert isolated.submit(operator.add, 1, 2).result() == 3


@pytest.mark.slow
def test_the_process_prints_nowhere(isolated: Isolated, capfd: pytest.CaptureFixture[str]) -> None:
    isolated.submit(print, "out").result()
    isolated.submit(os.write, 2, b"err").result()
    isolated.shutdown()
    assert capfd.readouterr() == ("", "")


def test_a_killed_process_is_gone_whatever_it_was_doing(isolated: Isolated) -> None:
    process = isolated.submit(os.getpid).result()
    sleeping = isolated.submit(time.sleep, 600)
    isolated.kill()
    with pytest.raises(BrokenExecutor, match="SIGKILL"):
        sleeping.result()
    assert not Path(f"/proc/{process}").exists()


def test_a_question_that_cannot_be_read_at_the_other_end_is_an_error(
    isolated: Isolated, monkeypatch: pytest.MonkeyPatch
) -> None:
    def local() -> None: ...

    with pytest.raises((AttributeError, TypeError)):
        isolated.submit(local)
    module = ModuleType("only_here")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec("def known(): ...", vars(module))
    with pytest.raises(ModuleNotFoundError):
        isolated.submit(module.known).result()
    assert isolated.submit(operator.add, 1, 2).result() == 3
