"""Tests of candidates as people write them: other files, marks, line ends, a script at the end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudal1.cli.verdicts.beside import remedy
from tests.cli.conftest import Run, complaints

pytestmark = pytest.mark.slow

HELPER = "import torch\n\n\ndef faster(x):\n    return torch.nn.functional.silu(x)\n"
IMPORTS = """import torch.nn as nn

from helpers import faster


class ModelNew(nn.Module):
    def forward(self, x):
        return faster(x)
"""
SCRIPT = """

if __name__ == "__main__":
    import sys

    from model import get_inputs

    print(ModelNew()(*get_inputs()))
    sys.exit(3)
"""
Judge = Callable[[str], tuple[dict[str, Any], list[str]]]


@pytest.fixture
def judge(run: Run) -> Judge:
    """Judge a candidate for `model.py`; return its verdict, and the lines on standard error."""

    def judged(candidate: str) -> tuple[dict[str, Any], list[str]]:
        options = ("--device", "cpu", "--checks-only", "--json")
        done = run("judge", "model.py", candidate, *options)
        assert done.returncode in (0, 1), done.stderr
        return json.loads(done.stdout), complaints(done)

    return judged


def test_a_second_file_beside_a_single_one_is_named_with_the_remedy(
    judge: Judge, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(IMPORTS)
    (tmp_path / "helpers.py").write_text(HELPER)
    verdict, said = judge("own.py")
    assert verdict["status"] == "no_build"
    assert verdict["reason"].startswith("ModuleNotFoundError: No module named 'helpers' (line 3)")
    assert said == [
        "note: helpers.py: lies beside own.py and was not read, for a single file was given; give "
        "a folder that holds both, or put all into one file"
    ]


def test_a_folder_of_two_files_is_judged(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "main.py").write_text(IMPORTS)
    (tmp_path / "own" / "helpers.py").write_text(HELPER)
    verdict, said = judge("own")
    assert (verdict["status"], said) == ("correct", [])


def test_a_relative_import_gives_the_right_way_to_import(judge: Judge, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "main.py").write_text(IMPORTS.replace("from helpers", "from .helpers"))
    (tmp_path / "own" / "helpers.py").write_text(HELPER)
    verdict, (said,) = judge("own")
    assert verdict["status"] == "no_build"
    assert said.startswith("note: own: files of a candidate import each other by their names alone")


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: './mine.cu' (line 3)", "mine.cu"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'mine.cu'", "mine.cu"),
        ("ModuleNotFoundError: No module named 'package.inner' (line 3)", "package"),
        ("ModuleNotFoundError: No module named 'cupy' (line 3)", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'other.cu'", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: '../mine.cu'", None),
        ("wrong output: input 0 (own)", None),
    ],
)
def test_only_files_beside_the_candidate_are_named(
    reason: str, said: str | None, tmp_path: Path
) -> None:
    (tmp_path / "mine.cu").touch()
    (tmp_path / "package").mkdir()
    found = remedy(tmp_path / "own.py", reason)
    assert (found or "").partition(": ")[0] == ("" if said is None else str(tmp_path / said))


@pytest.mark.parametrize(("mark", "end"), [("\ufeff", "\r\n"), ("", "\r")])
def test_a_byte_order_mark_any_line_ends_and_a_script_change_nothing(
    mark: str, end: str, judge: Judge, faster_source: str, tmp_path: Path
) -> None:
    text = mark + (faster_source + SCRIPT).replace("\n", end)
    (tmp_path / "own.py").write_bytes(text.encode())
    verdict, said = judge("own.py")
    assert (verdict["status"], said) == ("correct", [])


def test_rows_may_be_as_odd_as_files(
    run: Run, problem_source: str, faster_source: str, tmp_path: Path
) -> None:
    level = tmp_path / "suite" / "level1"
    level.mkdir(parents=True)
    expected = {
        "\ufeff" + faster_source: "correct",
        faster_source.replace("\n", "\r\n"): "correct",
        faster_source + SCRIPT: "correct",
        f"{IMPORTS}# cudal1: file helpers.py\n{HELPER}": "correct",
        IMPORTS: "no_build",
    }
    rows: list[str] = []
    for number, source in enumerate(expected, start=1):
        (level / f"{number}_p.py").write_text(problem_source.replace("x *", f"{number} * x *"))
        right = source.replace("silu(x)", f"silu(x) * {number}")
        rows.append(json.dumps({"level": 1, "problem_id": number, "source": right}))
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    done = run(
        "judge",
        "--suite",
        "kernelbench:suite",
        "--candidates",
        "rows.jsonl",
        "--device",
        "cpu",
        "--checks-only",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "rows.verdicts.jsonl").read_text().splitlines()
    verdicts = {each["problem_id"]: each["verdict"]["status"] for each in map(json.loads, lines)}
    assert verdicts == dict(enumerate(expected.values(), start=1))
