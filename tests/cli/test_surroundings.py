"""Tests that the folder and the environment of a judge steer nothing.

Each file of a hostile folder leaves a mark when any process imports it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.conftest import FASTER, PROBLEM
from tests.hostile import MARKING, STEERING, fill

pytestmark = pytest.mark.slow


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    folder = tmp_path / "hostile"
    folder.mkdir()
    fill(folder, tmp_path / "mark")
    (folder / "model.py").write_text(PROBLEM)
    (folder / "statistics.py").write_text(MARKING.format(mark=str(tmp_path / "mark")) + FASTER)
    other = folder / "other" / "deeper"
    other.mkdir(parents=True)
    (other / "queue.py").symlink_to(folder / "statistics.py")  # neither folder may be imported from
    (tmp_path / "locks").mkdir()
    return folder


def _run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the installed program inside the folder."""
    environment = {**os.environ, **STEERING, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [str(Path(sys.executable).parent / "cudal1"), *arguments],
        cwd=folder,
        env={**environment, "PYTHONSTARTUP": str(folder / "random.py")}
        | {"TMPDIR": str(folder.parent / "locks")},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _marks(folder: Path) -> str:
    mark = folder.parent / "mark"
    return mark.read_text() if mark.exists() else ""


@pytest.mark.parametrize("candidate", ["statistics.py", "other/deeper/queue.py"])
def test_a_judge_imports_nothing_from_where_it_is_started(hostile: Path, candidate: str) -> None:
    done = _run(hostile, "judge", "model.py", candidate, "--device", "cpu", "--checks-only")
    assert (done.returncode, _marks(hostile)) == (0, ""), done.stderr


def test_files_that_appear_during_a_suite_are_not_imported(hostile: Path) -> None:
    rows = [{"level": 1, "problem_id": number, "source": FASTER} for number in (1, 2, 3)]
    (hostile / "answers.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    late, ended = hostile / "json", threading.Event()
    late.mkdir(exist_ok=True)

    def appear() -> None:
        count = 0
        while not ended.wait(0.05):
            for name in ("pickle", "ast", "torch"):
                late_file = hostile / f"{name}_late_{count}.py"
                late_file.write_text(MARKING.format(mark=str(hostile.parent / "mark")))
                late_file.replace(hostile / f"{name}.py")
            count += 1

    thread = threading.Thread(target=appear)
    thread.start()
    try:
        done = _run(
            hostile,
            "judge",
            "--suite",
            "shipped",
            "--candidates",
            "answers.jsonl",
            "--device",
            "cpu",
            "--baselines",
            "none",
        )
    finally:
        ended.set()
        thread.join()
    assert (done.returncode, _marks(hostile)) == (0, ""), done.stderr


@pytest.mark.parametrize(
    "arguments", [("--help",), ("screen", "statistics.py"), ("doctor",), ("providers", "list")]
)
def test_other_commands_import_nothing_from_it_either(
    hostile: Path, arguments: tuple[str, ...]
) -> None:
    done = _run(hostile, *arguments)
    assert "Traceback" not in done.stderr
    assert _marks(hostile) == ""
