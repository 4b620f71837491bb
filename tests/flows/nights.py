"""A project in which a night can begin: problems, and a policy in the registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.project import Project, make_project

REGISTER = """
from pathlib import Path
from cudal1 import tracking
data = Path("data")
with tracking.Run(data, "embedded", key="first", params={}) as run:
    run.log_checkpoint(Path("cudal1/train/embedded"))
tracking.register(data, tracking.MODEL_NAME, Path("cudal1/train/embedded"), alias="newest")
"""
"""As stage `rl` does at the end of the pipeline, with the policy that the pipeline begins with."""


def make_night_project(folder: Path) -> Project:
    """A tiny project after `problems`, with the embedded policy as what the pipeline has made."""
    project = make_project(folder)

    def enough_to_learn(params: dict[str, Any]) -> None:
        params["lessons"].update(num_problems=4, num_samples=6)

    project.edit_params(enough_to_learn)
    for command in (["dvc", "repro", "problems"], ["-c", REGISTER]):
        words = command if command[0] == "-c" else ["-m", *command]
        done = subprocess.run(
            [sys.executable, *words], cwd=folder, env=project.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout
    return project
