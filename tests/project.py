"""Make a project for tests that run stages: the tree that git knows, with tiny parameters."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml

ROOT = Path(__file__).parent.parent
LEFT_OUT = ("tests/", "docs/", "benchmarks/", "data/")
MAX_TOO_LATE = 5
"""Number of times that a command may end before the kill."""
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
    "sft": {"steps": 2, "batch_size": 2, "checkpoint_every": 1},
    "selfsup": {
        "rounds": {"r1": {"init": "sft"}, "r2": {"init": "r1"}},
        "num_problems": 3,
        "num_samples": 3,
        "steps": 2,
        "batch_size": 2,
        "checkpoint_every": 1,
    },
    "rl": {
        "init": "r2",
        "num_problems": 4,
        "steps": 3,
        "prompts_per_step": 1,
        "group_size": 4,
        "checkpoint_every": 1,
        "validation_problems": 1,
        "validation_samples": 1,
    },
    "search": {
        "num_problems": 2,
        "rounds": 2,
        "answers_per_round": 1,
        "methods": {
            "vanilla": {
                "method": "vanilla",
                "sampling": "none",
                "reads": "data/shards/problems",
                "provider": {"kind": "rewriter", "teacher": "fuser"},
            },
            "evolve": {
                "method": "evolve",
                "sampling": "island",
                "reads": "data/policy/sft",
                "provider": {
                    "kind": "local",
                    "path": "data/policy/sft",
                    "temperature": 1.0,
                    "top_p": 1.0,
                    "max_tokens": 60,
                    "batch_size": 2,
                },
            },
        },
    },
    "lessons": {"num_problems": 2, "num_samples": 2},
    "tuned": {"steps": 2, "batch_size": 2, "checkpoint_every": 1},
    "challenger": {"num_problems": 4, "steps": 2, "checkpoint_every": 1, "validation_problems": 1},
    "duel": {"num_problems": 3, "num_samples": 1},
    "protocol": {"min_quads": 9, "max_quads": 9},
}


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
            **inherited,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "TMPDIR": str(temporary),
            "DVC_NO_ANALYTICS": "1",
            "COLUMNS": "200",
        }

    def run(
        self, *command: str, timeout_s: float = 1200, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a Python module, such as `dvc repro filter`, in the project; return its output."""
        return subprocess.run(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env={**self.environment(), **variables},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
        )

    def kill_when(
        self, reached: Callable[[], bool], *command: str, timeout_s: float = 1200
    ) -> None:
        """Start a Python module and kill it and all its children once `reached` holds.

        When this returns, none of them can write. On a busy machine `reached` may be asked too
        late: a command that has ended is run again, from where it began.
        """
        aside = self.folder.with_name(f"{self.folder.name}.before")
        for _ in range(MAX_TOO_LATE):
            shutil.copytree(self.folder, aside, symlinks=True)
            code = self._code_of_killed(reached, command, timeout_s)
            if code == -signal.SIGKILL:
                shutil.rmtree(aside)
                return
            assert code == 0, f"{command} ended with {code} before it could be killed"
            shutil.rmtree(self.folder)
            aside.rename(self.folder)
        raise AssertionError(f"{command} ended {MAX_TOO_LATE} times before it could be killed")

    def _code_of_killed(
        self, reached: Callable[[], bool], command: Sequence[str], timeout_s: float
    ) -> int:
        """Return the exit code of a command that is killed once `reached` holds."""
        child = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + timeout_s
        try:
            while not reached() and child.poll() is None:
                assert time.monotonic() < deadline, f"{command} did not get so far"
                time.sleep(0.01)
        finally:
            end_group(child)
        return child.returncode

    def metrics(self, stage: str) -> dict[str, Any]:
        return json.loads((self.data / "metrics" / f"{stage}.json").read_text())

    def edit_params(self, change: Callable[[dict[str, Any]], None]) -> None:
        path = self.folder / "params.yaml"
        params = yaml.safe_load(path.read_text())
        change(params)
        path.write_text(yaml.safe_dump(params, sort_keys=False))


def end_group(leader: subprocess.Popen[Any]) -> None:
    """Kill a process group, and return when no thread of it runs: none can write then."""
    with suppress(ProcessLookupError):
        os.killpg(leader.pid, signal.SIGKILL)
    leader.wait()
    while any(_runs_in(leader.pid, process) for process in psutil.process_iter()):
        time.sleep(0.01)


def _runs_in(group: int, process: psutil.Process) -> bool:
    """Return whether a process of the group has a running thread, be it the first or another."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        if os.getpgid(process.pid) == group:
            return process.status() != psutil.STATUS_ZOMBIE or process.num_threads() > 1
    return False


def make_project(folder: Path) -> Project:
    """Copy what git would track, with tiny parameters, into a repository of its own."""
    project = copy_of_the_tree(folder)

    def shrink(params: dict[str, Any]) -> None:
        for section, values in TINY.items():
            params[section].update(values)

    project.edit_params(shrink)
    return project


def copy_of_the_tree(folder: Path) -> Project:
    """Copy what git would track into a repository of its own; nothing has run there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith(LEFT_OUT):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / "dvc.lock").unlink(missing_ok=True)
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return Project(folder)


STAND_IN = '''"""Leave files made from nothing but the inputs, as a stage does in a few minutes."""

import hashlib
import sys
from pathlib import Path


def content(path):
    inside = sorted(path.rglob("*")) if path.is_dir() else [path]
    return b"".join(file.read_bytes() for file in inside if file.is_file())


outs, inputs = (words.split() for words in " ".join(sys.argv[1:]).split("FROM"))
digest = hashlib.sha256(b"".join(content(Path(name)) for name in inputs)).hexdigest()
number = int(digest[:6], 16) / 16**6
for out in map(Path, outs):
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".json":
        out.write_text('{"success": %s}' % number)
    elif out.suffix == ".csv":
        out.write_text("step,loss,success,reward_raw\\n1,0,0,0\\n2,1,1,%s\\n" % number)
    elif out.suffix:
        out.write_text(digest)
    else:
        out.mkdir(exist_ok=True)
        (out / "part").write_text(digest)
'''


def make_up_to_date(project: Project) -> None:
    """Run every stage, by commands that stand in for the real ones and take no time."""
    (project.folder / "stand_in.py").write_text(STAND_IN)
    path = project.folder / "dvc.yaml"
    content = yaml.safe_load(path.read_text())
    for stage in content["stages"].values():
        body = stage.get("do", stage)
        outs = [
            name
            for out in (*body["outs"], *body.get("metrics", []))
            for name in (out if isinstance(out, dict) else [out])
        ]
        inputs = ["params.yaml", *body["deps"]]
        body["cmd"] = f"python stand_in.py {' '.join(outs)} FROM {' '.join(inputs)}"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    done = project.run("dvc", "repro")
    assert done.returncode == 0, done.stdout


def keep_runs_in_git(project: Project) -> None:
    """Make git track the runs, as docs/rebuilding.md describes it."""
    ignored = project.folder / ".gitignore"
    ignored.write_text(ignored.read_text().replace("\ndvc.lock\n", "\n"))
    done = project.run("dvc", "config", "core.no_scm", "false")
    assert done.returncode == 0, done.stdout


def git_commit(folder: Path) -> None:
    """Commit all changes, as an engineer does after a run."""
    who = ["-c", "user.name=an engineer", "-c", "user.email=engineer@example.com"]
    subprocess.run(["git", "add", "--all"], cwd=folder, check=True)
    subprocess.run(["git", *who, "commit", "--quiet", "--message", "a run"], cwd=folder, check=True)


def stages_run(said: str) -> list[str]:
    """Return the stages that DVC or the pipeline's log says ran, or would run."""
    found = re.findall(r"^(?:Running stage '|stage \d+ of \d+, )([\w@-]+)", said, re.MULTILINE)
    return [stage for stage in found if f", {stage}: up to date" not in said]
