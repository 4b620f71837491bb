"""Tests that no process of a stage writes after the stage was killed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.project import MAX_TOO_LATE, Project

STAGE = """
import os, sys, threading, time
from pathlib import Path

def write():
    with open("written", "ab", buffering=0) as stream:
        while True:
            stream.write(b"x")

log = Path(sys.argv[1])
with log.open("a") as stream:
    stream.write("begun ")
Path("left").touch()
if log.read_text().count("begun") <= int(sys.argv[2]):
    sys.exit(int(sys.argv[3]))
os.fork()
threading.Thread(target=write).start()
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "project")
    made.folder.mkdir()
    (made.folder / "stage.py").write_text(STAGE)
    return made


def kill(project: Project, log: Path, *, num_early_ends: int, code: int = 0) -> None:
    written = project.folder / "written"

    def reached() -> bool:
        return written.exists() and written.stat().st_size > 1000

    project.kill_when(reached, "stage", str(log), str(num_early_ends), str(code))


def test_no_process_writes_after_a_kill(project: Project, tmp_path: Path) -> None:
    kill(project, tmp_path / "log", num_early_ends=0)
    size = (project.folder / "written").stat().st_size
    assert size > 1000
    time.sleep(0.2)
    assert (project.folder / "written").stat().st_size == size


def test_a_command_that_ended_before_the_kill_is_run_again_from_its_start(
    project: Project, tmp_path: Path
) -> None:
    before = sorted(project.folder.iterdir())
    log = tmp_path / "log"
    with pytest.raises(AssertionError, match="before it could be killed"):
        kill(project, log, num_early_ends=MAX_TOO_LATE)
    assert sorted(path for path in project.folder.iterdir() if path.name != ".tmp") == before
    kill(project, log, num_early_ends=0)
    assert log.read_text().count("begun") == MAX_TOO_LATE + 1


def test_a_command_that_fails_is_not_run_again(project: Project, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="ended with 3"):
        kill(project, tmp_path / "log", num_early_ends=9, code=3)
    assert (tmp_path / "log").read_text().count("begun") == 1
