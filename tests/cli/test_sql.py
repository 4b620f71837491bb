"""Questions to the ledger from the command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.ledger import Ledger

Run = Callable[..., "subprocess.CompletedProcess[str]"]


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
