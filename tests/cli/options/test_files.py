"""Tests of two files that a user names: read once, and refused only where Python refuses them."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from cudal1.cli.options.files import read_candidate, read_pair, read_problem
from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass

CPU = DeviceClass.CPU


@pytest.fixture
def problem(tmp_path: Path, problem_source: str) -> Path:
    path = tmp_path / "model.py"
    path.write_text(problem_source)
    return path


@pytest.fixture
def candidate(tmp_path: Path, faster_source: str) -> Path:
    path = tmp_path / "faster.py"
    path.write_text(faster_source)
    return path


@pytest.mark.parametrize(
    "source",
    [
        "class X: pass\nglobals()['Model' + 'New'] = X\n",
        "import sys\nclass X: pass\nsetattr(sys.modules[__name__], 'Model' 'New', X)\n",
        "from torch.nn import *\n",
        "from torch.nn import (*)\n",
        "class X: pass\nexec('Model' + 'New = X')\n",
        "def __getattr__(name):\n    return object\n",
        "class ＭodelNew: pass\n",  # noqa: RUF001 - Python takes it for the same letter
        "from torch.nn import Identity as ModelNew\n",
        "if True:\n    class ModelNew: pass\n",
        "try:\n    import no\nexcept ImportError:\n    ModelNew = int\n",
    ],
)
def test_a_candidate_that_may_define_the_name_is_left_to_the_sandbox(
    source: str, problem: Path, candidate: Path
) -> None:
    candidate.write_text(source)
    assert read_pair(problem, candidate, CPU)[1] == source


@pytest.mark.parametrize(
    "change",
    [
        ("class Model(", "if True:\n  class Model("),
        ("class Model(nn.Module)", "globals()['Mo' + 'del'] = X = type\nclass Y(nn.Module)"),
        ("def get_inputs", "from builtins import *\ndef inputs"),
    ],
)
def test_a_problem_that_may_define_its_names_is_left_to_the_prober(
    change: tuple[str, str], problem: Path, problem_source: str
) -> None:
    lines = problem_source.replace(*change).replace("\n    def forward", "\n      def forward")
    problem.write_text(lines.replace("\n        return", "\n          return", 1))
    assert read_problem(problem, CPU).source == problem.read_text()


def test_a_file_that_surely_lacks_a_name_is_refused_at_once(problem: Path, candidate: Path) -> None:
    with pytest.raises(SuiteError, match="has no Model; name the class to make faster Model"):
        read_pair(candidate, candidate, CPU)
    with pytest.raises(SuiteError, match="has no ModelNew; name the faster class ModelNew"):
        read_pair(problem, problem, CPU)
    with pytest.raises(SuiteError, match=r"faster\.py: is the candidate, and .*model\.py the"):
        read_pair(candidate, problem, CPU)


def test_a_file_that_is_no_python_is_called_so(problem: Path, candidate: Path) -> None:
    problem.write_text("faster, please: {")
    with pytest.raises(
        SuiteError, match=r"is no Python \(SyntaxError: .*; name a Python file that"
    ):
        read_pair(problem, candidate, CPU)


def test_each_file_is_read_once(problem: Path, candidate: Path, tmp_path: Path) -> None:
    pipes = tmp_path / "first", tmp_path / "second"
    for pipe, file in zip(pipes, (problem, candidate), strict=True):
        os.mkfifo(pipe)
        threading.Thread(target=pipe.write_text, args=(file.read_text(),)).start()
    item, source = read_pair(*pipes, CPU)
    assert (item.source, item.name) == (problem.read_text(), "first")
    assert source == candidate.read_text()


def test_an_empty_file_is_reported_as_empty(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    for content in ("", "\ufeff", " \r\n\t"):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(SuiteError, match=r"empty\.py: is empty"):
            read_candidate(path)


def test_a_dash_is_refused_with_the_name_of_standard_input() -> None:
    with pytest.raises(SuiteError, match=r"-: cannot be read .*; did you mean /dev/stdin\?"):
        read_candidate(Path("-"))


def test_code_hidden_by_an_encoding_is_in_the_judged_source(
    problem: Path, candidate: Path, faster_source: str
) -> None:
    hidden = b"# coding: raw_unicode_escape\n# rows \\u000aimport os\n" + faster_source.encode()
    candidate.write_bytes(hidden)
    assert "\nimport os\n" in read_pair(problem, candidate, CPU)[1]
    problem.write_bytes(b"# coding: raw_unicode_escape\n" + problem.read_bytes())
    with pytest.raises(SuiteError, match="save it as UTF-8"):
        read_problem(problem, CPU)


def test_problem_and_candidate_may_be_folders(
    problem: Path, candidate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = problem.parent / "folder"
    folder.mkdir()
    (folder / "helpers.py").write_text("WIDTH = 8\n")
    candidate.write_text(f"import helpers\n{candidate.read_text()}")
    for file in (problem, candidate):
        file.rename(folder / file.name)
    candidate = folder / candidate.name
    monkeypatch.chdir(folder)
    item, source = read_pair(Path(), Path(), CPU)
    assert (item.source, item.name) == ((folder / problem.name).read_text(), "folder")
    assert source == f"{candidate.read_text()}# cudal1: file helpers.py\nWIDTH = 8\n"
