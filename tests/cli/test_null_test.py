"""Tests of the null test from the command line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import complaints

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]
TELLS_EACH = (
    "from cudal1.cli import app; from cudal1.services import telling; "
    "telling.SAY_EVERY_S = 0.1; app()"
)
"""A program that runs the command with ten progress lines a second."""


def test_references_are_judged_against_themselves(run: Run) -> None:
    done = run("null-test", "model.py", "--device", "cpu", "--repeat", "2", "--json")
    found = json.loads(done.stdout)
    assert found["calibration"]["num_verdicts"] == 2, done.stderr
    assert found["is_complete"]
    assert done.returncode == (0 if found["is_clean"] else 1)


def test_a_problem_that_cannot_be_judged_is_named(
    run: Run, problem_source: str, tmp_path: Path
) -> None:
    constant = problem_source.replace("x * torch.sigmoid(x)", "torch.zeros(3)")
    (tmp_path / "constant.py").write_text(constant)
    done = run("null-test", "constant.py", "--device", "cpu")
    assert done.returncode == 2
    assert "own/L1/01_constant  not judged: the output is constant" in done.stdout
    assert complaints(done) == ["no problem can be judged"]


def test_files_and_a_suite_contradict_each_other(run: Run) -> None:
    done = run("null-test", "model.py", "--suite", "shipped")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_a_stopped_null_test_shows_its_results_so_far(
    command: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    command = [command[0], "-c", TELLS_EACH]
    arguments = ["null-test", "model.py", "--device", "cpu", "--repeat", "10000"]
    child = subprocess.Popen(
        [*command, *arguments],
        cwd=tmp_path,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stderr is not None
    while not re.match("judging: [1-9]", line := child.stderr.readline()):
        assert line.startswith(("trying references: ", "judging: 0 ")), (
            line + child.communicate()[1]
        )
    child.send_signal(signal.SIGINT)
    said, complained = child.communicate(timeout=300)
    done = subprocess.CompletedProcess(command, child.returncode, said, complained)
    assert (done.returncode, complaints(done)) == (130, ["interrupted"])
    assert said.startswith("null test   PARTIAL, interrupted: ")
    assert "of 10000 verdicts" in said
