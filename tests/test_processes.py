"""Tests that our programs start isolated in every case, and run the code of their own checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cudal1.processes import FLAGS, LOOPBACK, START, main_program, python, sparse, unsteered
from tests.hostile import VARIABLES, make_hostile

ROOT = Path(__file__).parent.parent
PROGRAM = """
import json, os, statistics, sys
import numpy
print(json.dumps({"flags": [sys.flags.isolated, sys.flags.utf8_mode], "words": sys.argv[1:],
                  "path": sys.path, "file": __file__, "environment": dict(os.environ)}))
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout with a program of its own, in a folder full of other modules."""
    folder = tmp_path / "checkout"
    (folder / "cudal1").mkdir(parents=True)
    for name in ("__init__.py", "processes.py", "start.py"):
        shutil.copy(ROOT / "cudal1" / name, folder / "cudal1")
    (folder / "tasks").mkdir()
    shutil.copy(ROOT / "tasks" / "__init__.py", folder / "tasks")
    (folder / "tasks" / "show.py").write_text(PROGRAM)
    make_hostile(folder, tmp_path / "note")
    return folder


def shown(checkout: Path, *command: str, **variables: str) -> dict:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=checkout,
        env={**os.environ, **variables},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (checkout.parent / "note").exists()
    return json.loads(done.stdout)


WAYS = [
    tuple(words.split())
    for words in (
        "-m tasks.show",
        "-mtasks.show",
        "-um tasks.show",
        "-W ignore -Xdev -m tasks.show",
        f"{' '.join(FLAGS)} cudal1/start.py tasks.show",
        "-I cudal1/start.py tasks.show",
    )
]
"""Words after `python` that run the same program."""


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_program_runs_isolated_however_it_is_started(
    checkout: Path, way: tuple[str, ...]
) -> None:
    found = shown(checkout, *way, "--item", "-m", **VARIABLES)
    assert found["flags"] == [1, 1]
    assert found["words"] == ["--item", "-m"]
    assert Path(found["file"]) == checkout / "tasks" / "show.py"
    assert not {"", str(checkout), str(checkout / "cudal1")} & set(found["path"])


@pytest.mark.parametrize("way", WAYS, ids=" ".join)
def test_a_program_sees_no_variable_that_steers(checkout: Path, way: tuple[str, ...]) -> None:
    found = shown(checkout, *way, **VARIABLES, MY_KEY="kept")["environment"]
    assert found["MY_KEY"] == "kept"
    steering = {name for name in VARIABLES if "proxy" not in name.lower() and name != "LANG"}
    assert steering & set(found) == set()
    assert found["LANG"] == "C.UTF-8"
    assert found["no_proxy"] == found["NO_PROXY"] == LOOPBACK


def test_a_program_is_found_from_any_folder(checkout: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, *FLAGS, str(checkout / "cudal1" / "start.py"), "tasks.show"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(json.loads(done.stdout)["file"]).is_relative_to(checkout)


def test_a_moved_checkout_runs_its_own_code(checkout: Path, tmp_path: Path) -> None:
    """The environment has the packages of another checkout installed."""
    moved = tmp_path / "moved"
    checkout.rename(moved)
    assert Path(shown(moved, "-m", "tasks.show")["file"]).is_relative_to(moved)


SPAWNING = """
import multiprocessing, sys
from tasks.answer import where

if __name__ == "__main__":
    fresh = multiprocessing.get_context("spawn")
    with fresh.Pool(1) as pool:
        print(__file__, pool.apply(where), sep="\\n")
"""


def test_a_spawned_process_runs_the_code_of_the_same_checkout(
    checkout: Path, tmp_path: Path
) -> None:
    (checkout / "tasks" / "answer.py").write_text(
        "import statistics, sys\ndef where(): return f'{__file__} {sys.flags.isolated}'\n"
    )
    (checkout / "tasks" / "spawn.py").write_text(SPAWNING)
    done = subprocess.run(
        [sys.executable, "-m", "tasks.spawn"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    folder = checkout / "tasks"
    assert done.stdout.splitlines() == [f"{folder / 'spawn.py'}", f"{folder / 'answer.py'} 1"]
    assert not (tmp_path / "note").exists()


@pytest.mark.slow
def test_a_package_is_run_by_its_main_module_and_an_unknown_one_is_named(checkout: Path) -> None:
    done = subprocess.run(
        python("prefect", "--version"), cwd=checkout, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    done = subprocess.run(
        python("tasks.nothing"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "no module tasks.nothing" in done.stderr


def test_other_main_programs_stay_unchanged() -> None:
    for command in (["-c", "x"], ["script.py", "-m", "tasks.x"], ["-Im"], [], ["-"]):
        found = main_program(["python", *command])
        assert found is None or not found[0].startswith("tasks.")
    assert main_program(["python", START]) is None
    assert main_program(python("prefect", "server", "start")) == ("prefect", ["server", "start"])


def test_a_users_own_exceptions_from_proxies_are_kept() -> None:
    for given in ({"NO_PROXY": "inside"}, {"no_proxy": "inside"}):
        found = unsteered({"HTTPS_PROXY": "http://p:1", **given})
        assert found["NO_PROXY"] == found["no_proxy"] == f"inside,{LOOPBACK}"
        assert unsteered(found) == found
    assert unsteered({"NO_PROXY": "inside"}) == {"NO_PROXY": "inside"}


def test_a_process_that_needs_no_key_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "secret")
    assert "MY_KEY" not in sparse()
    assert sparse(OMP_NUM_THREADS="1")["OMP_NUM_THREADS"] == "1"
