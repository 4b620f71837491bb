"""Prefect task: bring one DVC stage up to date.

DVC decides whether the stage must run; Prefect says when and shows it. Nothing else passes
between the two.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from prefect import get_run_logger, task
from prefect.client.schemas.objects import State
from prefect.exceptions import MissingContextError
from prefect.states import Failed

from cudal1.errors import CudaL1Error
from tasks.stages import is_fresh

UP_TO_DATE = ("didn't change, skipping", "is cached - skipping run")
SILENT = (
    "Use `dvc push`", "To track the changes", "To enable auto staging", "git add",
    "dvc config core",
    "Data and pipelines are up to date", "Updating lock file", "Generating lock file",
)  # fmt: skip
"""How lines begin that are about sharing through git, which is not this command's business."""


class StageFailed(CudaL1Error):
    """A stage ended with an error; the message is the stage's own line."""


@task(task_run_name="{stage}", retries=0)
def reproduce(stage: str) -> str | State[str]:
    """Run `dvc repro --single-item STAGE`; say `ran` or `fresh`, or fail with the stage's line.

    The child stays in this process group, so that cancelling the flow run stops it too.
    """
    started = time.monotonic()
    try:
        fresh = is_fresh(stage) or _repro(stage)
    except CudaL1Error as error:
        return Failed(message=str(error))
    outcome = "fresh" if fresh else "ran"
    _logger().info("%s: %s in %.1f s", stage, outcome, time.monotonic() - started)
    return outcome


def _repro(stage: str) -> bool:
    command = [sys.executable, "-m", "dvc", "repro", "--single-item", stage]
    with tempfile.TemporaryDirectory() as folder:
        reason = Path(folder) / "reason"
        environment = {
            **os.environ, "CUDAL1_FAILURE_FILE": str(reason),
            # dvc.yaml says `python`: the one that runs this
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        }  # fmt: skip
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, errors="replace", env=environment
        ) as child:
            try:
                assert child.stdout is not None
                fresh = _show(child.stdout)
            except BaseException:
                child.send_signal(signal.SIGINT)
                raise
        if child.returncode != 0:
            said = reason.read_text(encoding="utf-8") if reason.exists() else (
                f"dvc repro {stage} ended with exit code {child.returncode}; its output is above"
            )  # fmt: skip
            raise StageFailed(said)
    return fresh


def _show(lines: Iterable[str]) -> bool:
    """Pass DVC's words on, less what says nothing here; whether it found the stage up to date."""
    fresh = False
    for line in lines:
        if any(words in line for words in UP_TO_DATE):
            fresh = True
        elif line.strip() and not line.strip().startswith(SILENT):
            sys.stdout.write(line)
            sys.stdout.flush()
    return fresh


def _logger():
    try:
        return get_run_logger()
    except MissingContextError:
        import logging

        return logging.getLogger("cudal1")
