"""Run `cudal1 judge` in a folder of its own, and report what it leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.fuzz.grammar import Row
from cudal1 import processes
from cudal1.settings import protocols

QUICK = Path(__file__).with_name("quick.py")
TRIAL_LIMIT_S = 20.0
"""Seconds that the trial of one reference may take here."""
START_LIMIT_S = 20.0
"""Seconds in which a candidate must be imported and constructed here."""
BASE_LIMIT_S, ROW_LIMIT_S = 300.0, 150.0
"""Seconds that a run may take, and as many more for each row, to allow many limits in turn."""
GRACE_S = 5.0
"""Seconds within which the processes that a run started must end after it."""
PR_SET_CHILD_SUBREAPER = 36
LEVEL = 1


@dataclass(frozen=True)
class Ran:
    """The result of a run of the command."""

    command: tuple[str, ...]
    exit_code: int | None
    """None if it did not end in time."""
    stdout: str
    stderr: str
    took_s: float
    verdicts: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Verdicts by the number of the problem."""
    left: tuple[str, ...] = ()
    """Files, processes and locks that exist after it and did not exist before."""


def adopt() -> None:
    """Have all processes that lose their parents become children of this one."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def run_suite(rows: Sequence[Row], folder: Path) -> Ran:
    """Judge rows as a suite; row number 1 is problem 1 of level 1."""
    level = folder / "work" / "suite" / "KernelBench" / f"level{LEVEL}"
    level.mkdir(parents=True)
    work = folder / "work"
    lines: list[str] = []
    for number, row in enumerate(rows, start=1):
        (level / f"{number}_p.py").write_bytes(row.problem_file(number))
        lines.append(
            json.dumps({"level": LEVEL, "problem_id": number, "source": row.source(number)})
        )
    (work / "answers.jsonl").write_text("\n".join(lines) + "\n")
    (work / "protocol.yaml").write_text(_protocol())
    asked = ("--suite", "kernelbench:suite", "--candidates", "answers.jsonl")
    ran = _run(folder, asked, BASE_LIMIT_S + ROW_LIMIT_S * len(rows), ["answers.verdicts.jsonl"])
    return ran


def run_single(row: Row, folder: Path) -> Ran:
    """Judge one row as two files."""
    work = folder / "work"
    work.mkdir(parents=True)
    (work / "model.py").write_bytes(row.problem_file(1))
    (work / "faster.py").write_text(row.source(1), encoding="utf-8", newline="")
    (work / "protocol.yaml").write_text(_protocol())
    return _run(folder, ("model.py", "faster.py"), BASE_LIMIT_S + ROW_LIMIT_S, [])


def _protocol() -> str:
    found = protocols.load("cpu").model_dump(mode="json")
    return json.dumps(found | {"start_timeout_s": START_LIMIT_S, "memory_bytes": 4 << 30})


def _run(folder: Path, asked: Sequence[str], limit_s: float, written: Sequence[str]) -> Ran:
    work, scratch, home = (folder / name for name in ("work", "scratch", "home"))
    for each in (scratch, home):
        each.mkdir()
    options = ("--device", "cpu", "--checks-only", "--json", "--protocol", "protocol.yaml")
    command = ("judge", *asked, *options)
    before = _files(work)
    began = time.monotonic()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, *processes.FLAGS, str(QUICK), str(TRIAL_LIMIT_S), *command],
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env=processes.sparse(TMPDIR=str(scratch), HOME=str(home)),
        )
        exit_code = _ended(process, limit_s)
    took_s = time.monotonic() - began
    left = [f"process: {each}" for each in _end_strays(GRACE_S if exit_code is not None else 0)]
    left += [f"file: work/{name}" for name in sorted(_files(work) - before - set(written))]
    left += _left_in(scratch)
    left += [f"file: home/{name}" for name in sorted(_files(home))]
    verdicts: dict[int, list[dict[str, Any]]] = {}
    for name in written:
        for found in _lines(work / name):
            verdicts.setdefault(int(found["problem_id"]), []).append(found["verdict"])
    return Ran(
        command,
        exit_code,
        (folder / "stdout").read_bytes().decode("utf-8", "replace"),
        (folder / "stderr").read_bytes().decode("utf-8", "replace"),
        took_s,
        verdicts,
        tuple(left),
    )


def _ended(process: subprocess.Popen[bytes], limit_s: float) -> int | None:
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return None


def _end_strays(grace_s: float) -> list[str]:
    """Kill what the command has left running, and return how each was started."""
    deadline = time.monotonic() + grace_s
    while (strays := _strays()) and time.monotonic() < deadline:
        time.sleep(0.1)
    said = [_started_as(each) for each in strays]
    while strays:
        for each in strays:
            with contextlib.suppress(psutil.Error):
                each.send_signal(signal.SIGKILL)
        psutil.wait_procs(strays, 5)
        strays = _strays()
    return said


def _strays() -> list[psutil.Process]:
    """Return the descendants of this process; those that have ended are reaped."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    return psutil.Process().children(recursive=True)


def _started_as(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        words = [Path(sys.executable).name, *process.cmdline()[1:]]
        return f"{' '.join(words)[:200]} ({process.status()})"
    return "ended meanwhile"


def _left_in(scratch: Path) -> Iterator[str]:
    """Yield the contents of a temporary folder; the lock of a device stays, and must be free."""
    for path in sorted(scratch.iterdir()):
        if path.match("cudal1-device-*.lock"):
            with path.open("rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    yield f"lock: {path.name}"
        elif not path.match("torchinductor_*") or any(path.iterdir()):
            # PyTorch makes that folder wherever its compiler is imported
            yield f"file: scratch/{path.name}"


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        for line in path.read_text().splitlines():
            yield json.loads(line)


def make_room(folder: Path) -> None:
    """Remove a run's folder, whatever was done to it."""
    shutil.rmtree(folder, ignore_errors=True)
