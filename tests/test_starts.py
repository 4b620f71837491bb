"""Tests that processes are started in one way, with a listed environment."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from cudal1 import processes

ROOT = Path(__file__).parent.parent
STARTS = frozenset(
    "Popen run call check_call check_output getoutput "
    "create_subprocess_exec create_subprocess_shell "
    "ProcessPoolExecutor Pool Process spawn system popen fork forkpty posix_spawn posix_spawnp "
    "execv execve execvp execvpe execl execle execlp spawnv spawnve spawnvp".split()
)
MODULES = {"subprocess", "os", "pty", "multiprocessing", "asyncio", "concurrent", "mp"}
OTHERS = {
    "cudal1/processes.py": "is the one way",
    "cudal1/harness/worker": "runs inside a worker, whose environment `launch` has cleaned",
    "cudal1/harness/reference/forked.py": "forks, and cleans the fork's environment with `sparse`",
    "cudal1/harness/reference/keeper.py": "forks for `forked` and `probe`",
    "cudal1/harness/admission/probe.py": "forks, in a process that `sparse` started",
    "cudal1/llm/guard.py": "passes on what it is started with, which `server` has chosen",
    "cudal1/train": "starts members with a list of its own (`launched`), forks none",
    "tasks/pretrain.py": "a tool of ours that nothing else starts",
}
"""Places that start processes without naming `processes`, each with the reason."""


def _starts(path: Path) -> list[ast.Call]:
    found: list[ast.Call] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        match node.func:
            case ast.Attribute(value=ast.Name(id=module), attr=name):
                if module in MODULES and name in STARTS:
                    found.append(node)
            case ast.Name(id="ProcessPoolExecutor" | "Popen"):
                found.append(node)
            case _:
                pass
    return found


PLACES = [
    path.relative_to(ROOT).as_posix()
    for package in ("cudal1", "tasks", "flows")
    for path in sorted((ROOT / package).rglob("*.py"))
    if "suite/problems" not in path.as_posix() and _starts(path)
]


def _is_listed(place: str) -> bool:
    return any(place.startswith(other) for other in OTHERS)


def test_places_that_start_processes_are_found() -> None:
    assert "cudal1/harness/sandbox/launch.py" in PLACES
    assert "cudal1/harness/schedule/isolated.py" in PLACES


@pytest.mark.parametrize("place", [place for place in PLACES if not _is_listed(place)])
def test_each_process_gets_a_listed_environment(place: str) -> None:
    path = ROOT / place
    without = [
        call.lineno
        for call in _starts(path)
        if "env" not in {keyword.arg for keyword in call.keywords}
        and not (ast.unparse(call.func) == "os.execve" and len(call.args) == 3)
    ]
    assert without == [], f"{place}: give env=processes.sparse() or .inherited()"


@pytest.mark.parametrize("place", [place for place in PLACES if not _is_listed(place)])
def test_each_of_our_interpreters_is_isolated(place: str) -> None:
    """`sys.executable` with `-m` written by hand would not be isolated."""
    tree = ast.parse((ROOT / place).read_text(encoding="utf-8"))
    by_hand = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.List | ast.Tuple)
        and any(isinstance(e, ast.Attribute) and e.attr == "executable" for e in node.elts)
        and "*FLAGS" not in ast.unparse(node)
    ]
    assert by_hand == [], f"{place}: use processes.python()"


def test_a_sparse_environment_holds_no_key_and_no_steering_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steering = ("PYTHONPATH", "PREFECT_API_URL", "MLFLOW_RUN_ID", "GIT_DIR", "LC_ALL", "TORCH_LOGS")
    for name in ("OPENAI_API_KEY", *steering):
        monkeypatch.setenv(name, "x")
    assert processes.sparse().keys() <= processes.KEPT.keys() | processes.SET.keys()
    inherited = processes.inherited(OURS="1")
    assert inherited["OPENAI_API_KEY"] == "x"
    assert inherited["OURS"] == "1"
    assert not inherited.keys() & set(steering)


def test_a_program_started_by_hand_leaves_its_surroundings(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise SystemExit('imported from the folder')")
    done = subprocess.run(
        [sys.executable, "-m", "cudal1.cli", "--help"],
        cwd=tmp_path,
        env={**os.environ, "PREFECT_API_URL": "http://127.0.0.1:9"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: cudal1" in done.stdout
