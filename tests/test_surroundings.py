"""Tests that tests run alike in any environment of the user."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.surroundings import ROOT, cleaned

ODD = {
    "PYTHONPATH": "/hostile",
    "PYTHONSTARTUP": "/hostile/x.py",
    "LC_ALL": "tr_TR.ISO-8859-9",
    "LANG": "C",
    "PREFECT_API_URL": "http://127.0.0.1:9/api",
    "MLFLOW_TRACKING_URI": "x",
    "DVC_ROOT": "/",
    "GIT_DIR": "/",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "COLUMNS": "7",
    "FORCE_COLOR": "1",
    "OMP_NUM_THREADS": "x",
    "XDG_CACHE_HOME": "/",
    "XDG_CONFIG_HOME": "/",
}


def test_no_steering_variable_is_left(tmp_path: Path) -> None:
    kept = cleaned({**ODD, "PATH": "/bin", "HOME": str(tmp_path), "MINE": "x"}, tmp_path)
    left = {name for name, value in ODD.items() if kept.get(name) == value}
    assert left == {"HTTP_PROXY"}
    assert "127.0.0.1" in kept["no_proxy"]
    assert kept["PATH"].split(os.pathsep) == [str(Path(sys.executable).parent), "/bin"]
    assert (kept["HOME"], kept["MINE"]) == (str(tmp_path), "x")


def test_variables_that_identify_test_processes_stay(tmp_path: Path) -> None:
    assert cleaned({"PYTEST_XDIST_WORKER": "gw1"}, tmp_path)["PYTEST_XDIST_WORKER"] == "gw1"


@pytest.mark.parametrize("home", [None, "", "/proc", "/no/such/folder"])
def test_a_home_is_provided_where_none_is_writable(tmp_path: Path, home: str | None) -> None:
    given = {} if home is None else {"HOME": home}
    assert cleaned(given, tmp_path)["HOME"] == str(tmp_path)


@pytest.mark.slow
def test_tests_cannot_import_the_users_modules(tmp_path: Path) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    (hostile / "sitecustomize.py").write_text("import os\nos.environ['SEEN'] = 'yes'\n")
    (hostile / "cudal1_hostile.py").touch()
    test = tmp_path / "test_it.py"
    test.write_text(
        "import importlib.util, os, subprocess, sys\n"
        "def test_it():\n"
        "    assert importlib.util.find_spec('cudal1_hostile') is None\n"
        "    code = 'import importlib.util, os; '\n"
        "    code += 'print(importlib.util.find_spec(\"cudal1_hostile\"))'\n"
        "    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)\n"
        "    assert done.stdout == 'None\\n', done.stderr\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    options = [f"--rootdir={ROOT}", f"--confcutdir={ROOT}", "-p", "tests.conftest", str(test)]
    done = subprocess.run(
        [*command, *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{hostile}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
