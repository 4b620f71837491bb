"""Run `cudal1 judge` on a file of candidates, in pieces of limited time, and time it."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import smi
from cudal1.errors import ConfigError

SOME_WITHOUT = 1
"""Exit code of the command where candidates have no verdict."""
INTERRUPTED = (130, -signal.SIGINT)
"""Exit codes of an interrupted command; the second where it had hardly begun."""
STOP_S = 30.0
"""Seconds for an interrupted command to end by itself."""
POLL_S = 0.05
"""Seconds between two checks of the file of verdicts."""
WAIT_S = 60
"""Seconds that a command may wait for a device that a killed command has not left yet."""
WATCH_MS = 250
"""Milliseconds between two readings of a GPU's utilization."""
BEAT_S = 1.0
"""Seconds between two notes of its running time, for the case that this process is killed."""


@dataclass(frozen=True)
class Files:
    """The files that a run of the command writes, in one folder."""

    folder: Path
    verdicts: Path

    @property
    def answer(self) -> Path:
        """Return the file of the command's answer, as JSON."""
        return self.folder / "answer.json"

    @property
    def log(self) -> Path:
        """Return the file of its other output."""
        return self.folder / "log.txt"

    @property
    def beat(self) -> Path:
        """Return the file of its running time so far; it is absent once the command has ended."""
        return self.folder / "running.json"


def run(
    command: Sequence[str],
    files: Files,
    *,
    environment: Mapping[str, str],
    deadline: float,
    keep_open: int,
    only_first: bool = False,
) -> dict[str, Any]:
    """Run the command until it ends, or until it is interrupted.

    Args:
        command: `cudal1 judge` with its words.
        files: what it writes.
        environment: its variables, all of them.
        deadline: it is interrupted then; what it has judged is in its file.
        keep_open: a descriptor that it inherits.
        only_first: interrupt it once it has written a verdict.

    Returns:
        `code`: its exit code, None where it had to be killed; `wall_s`: seconds from start to end;
        `first_verdict_s`: seconds to its first verdict, None where there was none; `busy`: share of
        that time in which the GPUs that it sees computed, and `busy_judging`: from its first
        verdict, both None without a GPU.

    Raises:
        ConfigError: it says that it cannot judge.
    """
    before = _size(files.verdicts)
    told: dict[str, Any] = {"code": None, "wall_s": 0.0, "first_verdict_s": None}
    began = beaten = time.monotonic()
    with (
        files.answer.open("wb") as answer,
        files.log.open("ab") as log,
        smi.watched("utilization.gpu", every_ms=WATCH_MS) as seen,
    ):
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=log,
            env=dict(environment),
            pass_fds=(keep_open,),
        )
        try:
            while process.poll() is None and time.monotonic() < deadline:
                time.sleep(POLL_S)
                told["wall_s"] = time.monotonic() - began
                if told["first_verdict_s"] is None and _size(files.verdicts) > before:
                    told["first_verdict_s"] = told["wall_s"]
                    if only_first:
                        break
                if time.monotonic() > beaten + BEAT_S:
                    files.beat.write_text(json.dumps(told), encoding="utf-8")
                    beaten = time.monotonic()
        finally:
            told["code"] = _stopped(process)
    told["wall_s"] = time.monotonic() - began
    mine = seen_by(environment.get("CUDA_VISIBLE_DEVICES"), seen)
    told["busy"] = busy(mine, after=0.0)
    told["busy_judging"] = busy(mine, after=(told["first_verdict_s"] or 0.0) / told["wall_s"])
    files.beat.unlink(missing_ok=True)
    if told["code"] not in (0, SOME_WITHOUT, *INTERRUPTED, None):
        said = files.log.read_text(encoding="utf-8", errors="replace").strip()
        raise ConfigError(f"cudal1 judge ended with {told['code']}: {said[-2000:]}")
    return told


def seen_by(visible: str | None, seen: Mapping[str, Sequence[int]]) -> list[Sequence[int]]:
    """Return the readings of the GPUs that a variable lets a program see, of all without it."""
    names = [] if visible is None else visible.split(",")
    return [each for index, each in seen.items() if index in names or not names]


def busy(readings: Sequence[Sequence[int]], *, after: float) -> float | None:
    """Return the mean of all GPUs' readings in per cent as a share, 0 to 1; None without readings.

    Args:
        readings: of each GPU, evenly spaced.
        after: share of the time, 0 to 1, with readings that are left out.
    """
    means = [fmean(late) for each in readings if (late := each[int(after * len(each)) :])]
    return fmean(means) / 100 if means else None


def cut_off(files: Files) -> dict[str, Any] | None:
    """Return the running time of a run with a killed benchmark, once; None if there was none."""
    try:
        told = json.loads(files.beat.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    files.beat.unlink()
    return told


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _stopped(process: subprocess.Popen[bytes]) -> int | None:
    """Interrupt the command if it runs; return its exit code, None where it had to be killed."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None
