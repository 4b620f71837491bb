"""Prefect task: bring one DVC stage up to date.

DVC decides whether the stage must run; Prefect decides when, retries, and shows it. Nothing else
passes between the two: a stage's process does not know that there is a Prefect.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import psutil
from prefect import get_run_logger, task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.client.schemas.objects import State
from prefect.exceptions import MissingContextError
from prefect.runtime import task_run
from prefect.states import Failed

from cudal1.errors import CudaL1Error
from cudal1.processes import inherited, python, unsteered
from tasks.server.checkout import CHECKOUT
from tasks.server.pace import Pace, forget_latest
from tasks.server.prefect_home import with_proxies
from tasks.server.relay import Relay
from tasks.server.workspace import is_attended
from tasks.stages import descriptions, is_fresh

UP_TO_DATE = ("didn't change, skipping", "is cached - skipping run")
RAN, FRESH = "ran", "fresh"
"""Outcomes of a stage."""
SILENT = (
    "Running stage '",
    "> python -I",
    "Use `dvc push`",
    "To track the changes",
    "To enable auto staging",
    "git add",
    "dvc config core",
    "WARNING: 'data/shards/",
    "Data and pipelines are up to date",
    "Updating lock file",
    "Generating lock file",
)
"""Beginnings of lines of DVC's own: commands, sharing through git, a stage without new facts."""
RETRY_AFTER_S = [30.0, 300.0]
"""Seconds before each retry of a deployment's stage: a device or a store may be held, a provider
down."""


class StageFailed(CudaL1Error):
    """A stage ended with an error; the message is the stage's own line."""


def bring_up_to_date(stages: Iterable[str]) -> str | None:
    """Run one task for each stage, in order; return the message of the first that fails, or None.

    At a terminal a failed stage is not retried, since a person is looking.
    """
    tried = (
        reproduce
        if is_attended()
        else reproduce.with_options(retries=len(RETRY_AFTER_S), retry_delay_seconds=RETRY_AFTER_S)
    )
    stages = list(stages)
    told = descriptions(stages)
    forget_latest()
    pace = Pace(stages)
    for stage in stages:
        begun = time.monotonic()
        what = f"{told[stage]}; {pace.so_far(stage)}"
        state = tried(stage, pace.place(stage), what, return_state=True)
        if not state.is_completed():
            return state.message or f"{stage} failed"
        if state.result() == RAN:
            pace.add(stage, time.monotonic() - begun)
    return None


def short_name(stage: str) -> str:
    """Return `duel` for `flows/night/dvc.yaml:duel`."""
    return stage.rpartition(":")[2]


def _run_name() -> str:
    given = task_run.parameters
    return f"{short_name(given['stage'])}, {given['place']}"


@task(task_run_name=_run_name)
def reproduce(stage: str, place: str, what: str) -> str | State[str]:
    """Run `dvc repro --single-item STAGE`; return `ran` or `fresh`, or fail with the stage's line.

    The child stays in this process group, so that cancelling the flow run stops it too.

    Args:
        stage: DVC's name of it.
        place: its number among all, such as `5 of 11`.
        what: what it does, for people.
    """
    log = _logger()
    named = f"stage {place}, {short_name(stage)}"
    try:
        with Relay(log, _show_progress(stage)) as relay:
            fresh = is_fresh(stage)
            if not fresh:
                relay.take(_print(f"{named}: {what}"))
                fresh = _repro(stage, relay)
            if fresh:
                relay.take(_print(f"{named}: up to date"))
    except CudaL1Error as error:
        log(str(error))
        return Failed(message=str(error))
    return FRESH if fresh else RAN


def _print(line: str) -> str:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    return line


def _repro(stage: str, relay: Relay) -> bool:
    command = python("dvc", "repro", "--single-item", stage)
    with tempfile.TemporaryDirectory() as folder:
        reason = Path(folder) / "reason"
        # at a terminal a stage draws its own bars
        stderr = None if sys.stderr.isatty() else subprocess.STDOUT
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            errors="replace",
            env=_environment(reason),
            cwd=CHECKOUT,
        ) as child:
            try:
                assert child.stdout is not None
                fresh = _show(child.stdout, relay)
            except KeyboardInterrupt:  # Ctrl-C: the whole group has heard it
                raise
            except BaseException:  # Prefect's TerminationSignal is no Exception; it is raised again
                _interrupt(child.pid)
                raise
        if child.returncode != 0:
            said = (
                reason.read_text(encoding="utf-8")
                if reason.exists()
                else (
                    f"dvc repro {stage} ended with exit code {child.returncode}; "
                    "its output is above"
                )
            )
            raise StageFailed(said)
    return fresh


def _interrupt(process: int) -> None:
    """Interrupt a child and all below it in this group, as Ctrl-C would.

    DVC alone would not do: it ignores the signal while its stage runs.
    """
    with suppress(psutil.Error):
        child = psutil.Process(process)
        for each in (*child.children(recursive=True), child):
            with suppress(psutil.Error, OSError):
                if os.getpgid(each.pid) == os.getpgrp():
                    each.send_signal(signal.SIGINT)


def _environment(reason: Path) -> dict[str, str]:
    """Return the stage's environment, without a way to Prefect's server.

    So no candidate costs that server a call.

    Proxies are the user's: stages ask providers.
    """
    given = inherited(
        CUDAL1_FAILURE_FILE=str(reason),
        # dvc.yaml says `python`: it must be the interpreter that runs this
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
    )
    return unsteered(with_proxies(given))


def _show(lines: Iterable[str], relay: Relay) -> bool:
    """Pass lines on, except silent ones; return whether DVC found the stage up to date."""
    fresh = False
    for line in lines:
        if any(words in line for words in UP_TO_DATE):
            fresh = True
        elif line.strip() and not line.strip().startswith(SILENT):
            relay.take(_print(line.rstrip()))
    return fresh


def _show_progress(stage: str) -> Callable[[float, str], None]:
    """Return a function that moves the stage's bar in the UI; the first call makes the bar."""
    made: list[UUID] = []

    def show(share: float, what: str) -> None:
        if made:
            update_progress_artifact(made[0], progress=100 * share, description=what)
        else:
            key = "".join(c if c.isalnum() else "-" for c in short_name(stage).lower())
            found = create_progress_artifact(100 * share, key=f"stage-{key}", description=what)
            assert isinstance(found, UUID)
            made.append(found)

    return show


def _logger() -> Callable[[str], None]:
    try:
        return get_run_logger().info
    except MissingContextError:
        import logging

        return logging.getLogger("cudal1").info
