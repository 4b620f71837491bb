"""Tests of candidates as people write them: other files, marks, line ends, a script at the end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from cudal1.cli.options.files import read_candidate
from cudal1.cli.verdicts.beside import remedy
from tests.cli.conftest import FASTER, PROBLEM, Run, complaints, environment_in, run_in

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


def _fill(folder: Path) -> None:
    """Write candidates as people do: files and folders of them."""
    for name, imports in (
        ("both", IMPORTS),
        ("relative", IMPORTS.replace("from helpers", "from .helpers")),
    ):
        (folder / name).mkdir()
        (folder / name / "main.py").write_text(imports)
        (folder / name / "helpers.py").write_text(HELPER)
    text = FASTER + SCRIPT
    (folder / "marked.py").write_bytes(("\ufeff" + text.replace("\n", "\r\n")).encode())
    (folder / "returns.py").write_bytes(text.replace("\n", "\r").encode())


FILES = ("both", "marked.py", "returns.py")
ROWS = {
    "marked": "\ufeff" + FASTER,
    "carriage returns": FASTER.replace("\n", "\r\n"),
    "script": FASTER + SCRIPT,
    "two files": f"{IMPORTS}# cudal1: file helpers.py\n{HELPER}",
    "one of two files": IMPORTS,
}
"""Sources that stand in rows as they are, with names."""


@dataclass(frozen=True)
class Told:
    """The verdict on a candidate."""

    status: str
    reason: str


@pytest.fixture(scope="module")
def candidates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("candidates")
    _fill(folder)
    return folder


@pytest.fixture(scope="module")
def told(candidates: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    """Judge all candidates in one run: as they are in rows, and files as `cudal1 judge` reads them.

    Each has a problem of its own, which is the place of its verdict.
    """
    folder = tmp_path_factory.mktemp("told")
    level = folder / "suite" / "level1"
    level.mkdir(parents=True)
    sources = {name: read_candidate(candidates / name) for name in FILES} | ROWS
    rows: list[str] = []
    for number, source in enumerate(sources.values(), start=1):
        (level / f"{number}_p.py").write_text(PROBLEM.replace("x *", f"{number} * x *"))
        right = source.replace("silu(x)", f"silu(x) * {number}")
        rows.append(json.dumps({"level": 1, "problem_id": number, "source": right}))
    (folder / "rows.jsonl").write_text("\n".join(rows) + "\n")
    asked = ("judge", "--suite", "kernelbench:suite", "--candidates", "rows.jsonl")
    options = ("--device", "cpu", "--checks-only", "--json")
    done = run_in(folder, *asked, *options, environment=environment_in(folder))
    assert done.returncode == 0, done.stderr
    lines = (folder / "rows.verdicts.jsonl").read_text().splitlines()
    found = {each["problem_id"]: each["verdict"] for each in map(json.loads, lines)}
    assert len(found) == len(sources)
    return {
        name: Told(found[number]["status"], found[number]["reason"] or "")
        for number, name in enumerate(sources, start=1)
    }


def test_a_second_file_beside_a_single_one_is_named_with_the_remedy(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(IMPORTS)
    (tmp_path / "helpers.py").write_text(HELPER)
    done = run("judge", "model.py", "own.py", "--device", "cpu", "--checks-only", "--json")
    assert done.returncode == 1, done.stderr
    verdict = json.loads(done.stdout)
    assert verdict["status"] == "no_build"
    assert verdict["reason"].startswith("ModuleNotFoundError: No module named 'helpers' (line 3)")
    assert complaints(done) == [
        "note: helpers.py: lies beside own.py and was not read, for a single file was given; give "
        "a folder that holds both, or put all into one file"
    ]


def test_a_folder_of_two_files_is_judged(told: dict[str, Told]) -> None:
    assert told["both"].status == "correct", told["both"].reason


def test_a_relative_import_gives_the_right_way_to_import(run: Run, candidates: Path) -> None:
    folder = str(candidates / "relative")
    done = run("judge", "model.py", folder, "--device", "cpu", "--checks-only", "--json")
    assert json.loads(done.stdout)["status"] == "no_build"
    (said,) = complaints(done)
    expected = f"note: {folder}: files of a candidate import each other by their names alone"
    assert said.startswith(expected)


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


@pytest.mark.parametrize("name", ["marked.py", "returns.py"])
def test_a_byte_order_mark_any_line_ends_and_a_script_change_nothing(
    name: str, told: dict[str, Told]
) -> None:
    assert told[name].status == "correct", told[name].reason


@pytest.mark.parametrize("name", ROWS)
def test_rows_may_be_as_odd_as_files(name: str, told: dict[str, Told]) -> None:
    expected = "no_build" if name == "one of two files" else "correct"
    assert told[name].status == expected, told[name].reason
