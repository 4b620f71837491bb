"""Make a project in which a night can begin: with problems, and a policy in the registry."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.project import Project, make_project

REGISTER = """
from pathlib import Path
from cudal1.tracking import registry
from cudal1.tracking import runs as tracking
data = Path("data")
with tracking.Run(data, "embedded", key="first", params={}) as run:
    run.log_checkpoint(Path("cudal1/train/embedded"))
registry.register(data, registry.MODEL_NAME, Path("cudal1/train/embedded"), alias="best")
"""
"""A program that registers a policy as the best of the pipeline, as its training stages do."""


def make_night_project(folder: Path) -> Project:
    """Make a tiny project after `problems`, with the embedded policy as the pipeline's result."""
    project = make_project(folder)

    def enough_to_learn(params: dict[str, Any]) -> None:
        params["lessons"].update(num_problems=4, num_samples=6)

    project.edit_params(enough_to_learn)
    for command in (["dvc", "repro", "problems"], ["-c", REGISTER]):
        words = command if command[0] == "-c" else ["-m", *command]
        done = subprocess.run(
            [sys.executable, *words],
            cwd=folder,
            env=project.environment(),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        assert done.returncode == 0, done.stdout
    return project
