"""A project of its own for tests that run stages: the tree that git knows, tiny parameters."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
LEFT_OUT = ("tests/", "docs/", "benchmarks/", "data/")
TINY: dict[str, dict[str, Any]] = {
    "problems": {"levels": [3], "generated_train": 4, "generated_heldout": 2},
    "policy": {"max_new_tokens": 200},
    "evaluation": {"num_problems": 2, "num_samples": 1},
    "generate": {
        "attempts": 2,
        "successes": 1,
        "providers": {
            "librarian": {"kind": "rewriter", "teacher": "librarian"},
            "fuser": {"kind": "rewriter", "teacher": "fuser"},
        },
    },
    "sft": {"steps": 4, "batch_size": 2, "checkpoint_every": 2},
    "selfsup": {
        "num_problems": 4, "num_samples": 4, "steps": 2, "batch_size": 2, "checkpoint_every": 1,
    },
    "rl": {
        "num_problems": 4, "steps": 5, "prompts_per_step": 2, "group_size": 4,
        "checkpoint_every": 1,
    },
    "search": {
        "num_problems": 2, "rounds": 2, "answers_per_round": 1,
        "methods": {
            "vanilla": {
                "method": "vanilla", "sampling": "none", "reads": "data/shards/problems",
                "provider": {"kind": "rewriter", "teacher": "fuser"},
            },
            "evolve": {
                "method": "evolve", "sampling": "island", "reads": "data/policy/sft",
                "provider": {
                    "kind": "local", "path": "data/policy/sft", "temperature": 1.0, "top_p": 1.0,
                    "max_tokens": 60, "batch_size": 2,
                },
            },
        },
    },
    "lessons": {"num_problems": 2, "num_samples": 2},
    "challenger": {"steps": 2, "batch_size": 2, "checkpoint_every": 1},
    "duel": {"num_problems": 3, "num_samples": 1},
    "protocol": {"min_quads": 9, "max_quads": 9},
}  # fmt: skip


@dataclass(frozen=True)
class Project:
    """A copy of the tree in which stages run as an engineer runs them."""

    folder: Path

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def environment(self) -> dict[str, str]:
        temporary = self.folder / ".tmp"
        temporary.mkdir(exist_ok=True)
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        return {
            **inherited, "PYTHONPATH": str(self.folder),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(temporary),
            "DVC_NO_ANALYTICS": "1", "PREFECT_HOME": str(self.folder / ".prefect"),
            "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "180",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL", "DO_NOT_TRACK": "true",
            "COLUMNS": "200",
        }  # fmt: skip

    def run(self, *command: str, timeout_s: float = 280) -> subprocess.CompletedProcess[str]:
        """Run a Python module in the project, such as `dvc repro filter`; its output as text."""
        return subprocess.run(
            [sys.executable, "-m", *command], cwd=self.folder, env=self.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout_s, check=False,
        )  # fmt: skip

    def kill_when(self, reached: Callable[[], bool], *command: str, timeout_s: float = 200) -> None:
        """Start a Python module and kill it and all its children once `reached` holds."""
        child = subprocess.Popen(
            [sys.executable, "-m", *command], cwd=self.folder, env=self.environment(),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        deadline = time.monotonic() + timeout_s
        try:
            while not reached():
                assert child.poll() is None, f"{command} ended before it could be killed"
                assert time.monotonic() < deadline, f"{command} did not get so far"
                time.sleep(0.01)
        finally:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def metrics(self, stage: str) -> dict[str, Any]:
        return json.loads((self.data / "metrics" / f"{stage}.json").read_text())

    def edit_params(self, change: Callable[[dict[str, Any]], None]) -> None:
        path = self.folder / "params.yaml"
        params = yaml.safe_load(path.read_text())
        change(params)
        path.write_text(yaml.safe_dump(params, sort_keys=False))


def make_project(folder: Path) -> Project:
    """Copy what git would track, with tiny parameters, into a repository of its own."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith(LEFT_OUT):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / "dvc.lock").unlink(missing_ok=True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    project = Project(folder)

    def shrink(params: dict[str, Any]) -> None:
        for section, values in TINY.items():
            params[section].update(values)

    project.edit_params(shrink)
    return project
