"""The command line, as somebody with two files or one question uses it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.ledger import Ledger

ROOT = Path(__file__).parents[1]
PROBLEM = """import torch
import torch.nn as nn

N = 64


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return []
"""
FASTER = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "locks").mkdir()
    (tmp_path / "model.py").write_text(PROBLEM)
    (tmp_path / "faster.py").write_text(FASTER)
    return [sys.executable, "-m", "cudal1.cli"]


def environment(folder: Path) -> dict[str, str]:
    """With a temporary folder of its own: the device's lock of other tests lies elsewhere."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "locks")}


@pytest.fixture
def run(command: list[str], tmp_path: Path) -> Run:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *arguments], cwd=tmp_path, env=environment(tmp_path),
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip

    return run


def judge(run: Run, problem: str, candidate: str, *more: str) -> subprocess.CompletedProcess[str]:
    return run("judge", problem, candidate, "--params", str(ROOT / "params.yaml"), *more)


def test_a_module_and_a_variant_get_a_verdict(run: Run) -> None:
    done = judge(run, "model.py", "faster.py", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "correct"


@pytest.mark.parametrize(
    ("problem", "candidate", "named"),
    [
        ("absent.py", "faster.py", "absent.py"),
        ("model.py", "absent.py", "absent.py"),
        ("faster.py", "faster.py", "faster.py"),
        ("constant.py", "faster.py", "constant.py"),
        ("model.py", "locks", "locks"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(
    problem: str, candidate: str, named: str, run: Run, tmp_path: Path
) -> None:
    constant = PROBLEM.replace("x * torch.sigmoid(x)", "torch.zeros(3)")
    (tmp_path / "constant.py").write_text(constant)
    done = judge(run, problem, candidate)
    assert done.returncode == 2
    assert done.stderr.startswith(named)
    assert done.stderr.count("\n") == 1


def test_params_that_are_not_there_are_named(run: Run) -> None:
    done = run("judge", "model.py", "faster.py")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("params.yaml: cannot be read")


def test_a_killed_judge_leaves_no_folder_behind(command: list[str], tmp_path: Path) -> None:
    slow = FASTER.replace("import torch\n", "import time\ntime.sleep(50)\nimport torch\n", 1)
    (tmp_path / "slow.py").write_text(slow)
    arguments = ["judge", "model.py", "slow.py", "--params", str(ROOT / "params.yaml")]
    child = subprocess.Popen([*command, *arguments], cwd=tmp_path, env=environment(tmp_path))

    def folders() -> list[Path]:
        return list((tmp_path / "locks").glob("cudal1-*/"))

    def until(is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 100
        while not is_so():
            assert time.monotonic() < deadline
            time.sleep(0.1)

    until(lambda: any(list(folder.iterdir()) for folder in folders()))
    child.send_signal(signal.SIGKILL)
    child.wait()
    until(lambda: not folders())


@pytest.fixture
def ledger(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with Ledger.open(tmp_path / "data"):
        pass


@pytest.mark.usefixtures("ledger")
def test_answers_to_a_question_are_json(run: Run) -> None:
    done = run("sql", "select 1 as one, 'nan'::float as none", "--json")
    assert json.loads(done.stdout) == [{"one": 1, "none": None}], done.stderr


@pytest.mark.usefixtures("ledger")
def test_a_wrong_question_is_one_line(run: Run) -> None:
    done = run("sql", "select * from nowhere")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("SQL: ")


def test_a_question_before_any_run_is_told_what_to_do(run: Run) -> None:
    done = run("sql", "from best")
    assert (done.returncode, done.stderr) == (2, "data: no ledger here; run `make run` first\n")
