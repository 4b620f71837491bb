"""Run programs side by side, each with a time limit, and leave none of them behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from cudal1 import processes

Work = TypeVar("Work")


@dataclass(frozen=True)
class Ended:
    """The end of a program."""

    code: int | None
    """Exit code, negative for a signal; None where its time was over."""
    wall_s: float
    """Seconds from its start to its end."""
    said: str
    """Last part of its output."""

    @property
    def why(self) -> str:
        """Return the reason for having no result, in one line."""
        if self.code is None:
            return f"did not end in {self.wall_s:.0f} s"
        lines = self.said.splitlines()
        last = f": {lines[-1]}" if lines else ""
        if self.code < 0:
            return f"died of {signal.Signals(-self.code).name}{last}"
        return f"ended with exit code {self.code}{last}"


class ClosedError(Exception):
    """A program was ended because its result is not awaited."""


class Children:
    """Programs that run while this is open; those that still run when it closes are killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._lock:
            self._is_closed = True
            for process in self._running:
                _kill(process)

    def run(
        self, script: Path, job: Path, *, limit_s: float, environment: Mapping[str, str]
    ) -> Ended:
        """Run a script on a job, in the job's folder, which is its home.

        Released code runs there as it runs under KernelBench: in no sandbox. It inherits no
        variable that may hold a key.

        Raises:
            ClosedError: this was closed before the program had ended.
        """
        log = job.with_suffix(".log")
        command = [sys.executable, *processes.FLAGS, str(script), str(job)]
        began = time.monotonic()
        with log.open("wb") as stream:
            with self._lock:
                self._require_open()
                process = subprocess.Popen(
                    command,
                    cwd=job.parent,
                    env=processes.sparse(HOME=str(job.parent), **environment),
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                code: int | None = process.wait(limit_s)
            except subprocess.TimeoutExpired:
                code = None
            wall_s = time.monotonic() - began
            _kill(process)  # also ends what it started
            process.wait()
            with self._lock:
                self._running.discard(process)
                self._require_open()
        said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        return Ended(code, wall_s, said)

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError


def side_by_side(
    work: Iterable[Work], do: Callable[[Work, Children], None], *, beside: int, deadline: float
) -> None:
    """Do pieces of work, `beside` at a time; none is begun after the deadline.

    An interrupt ends what runs.
    """
    left = deque(work)

    with ThreadPoolExecutor(beside) as pool, Children() as children:

        def go_on() -> None:
            while time.monotonic() < deadline:
                try:
                    piece = left.popleft()
                except IndexError:
                    return
                do(piece, children)

        for done in [pool.submit(go_on) for _ in range(min(beside, len(left)))]:
            done.result()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
