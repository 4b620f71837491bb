"""The asking side of the process that tries references (`probe`), which starts on demand.

Threat: a problem may end that process. The problem is refused for that; the next problem gets
another process.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from typing import Any

from cudal1 import processes
from cudal1.errors import SuiteError
from cudal1.harness.reference.scratch import Scratch

END_LIMIT_S = 10.0
"""Seconds for the process to end after its last request."""
MAX_ENDED = 2
"""Number of processes that may end before any has answered."""
MAX_SAID = 300
"""Characters of a process's last output that are shown."""


class Prober:
    """The process `cudal1.harness.admission.probe`, started on demand and after it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._said = tempfile.TemporaryFile(  # noqa: SIM115 -- closed with the process
            "w+", encoding="utf-8", errors="replace"
        )
        self._folder = Scratch("cudal1-trials-")
        self._is_asking = False
        self._num_answered = 0
        self._num_ended = 0

    def ask(self, request: dict[str, Any], count: int) -> list[dict[str, Any]]:
        """Return up to `count` answers, of which one with a reason is the last.

        A problem that ends the process itself is refused for that; the next problem gets another
        process.

        Raises:
            SuiteError: the process ends before it answers anything.
        """
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        answers: list[dict[str, Any]] = []
        self._is_asking = True
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            while len(answers) < count:
                answers.append(json.loads(process.stdout.readline()))
                if answers[-1].get("reason") is not None:
                    break
        except (BrokenPipeError, json.JSONDecodeError):
            self._has_ended(process)
            return [{"reason": "ends the process that tries it"}]
        self._is_asking = False
        self._num_answered += 1
        return answers

    def close(self) -> None:
        """End the process; it cleans up first unless a problem is being tried."""
        if self._process is not None:
            if self._is_asking:
                self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=END_LIMIT_S)
            self._process.kill()
            self._process.communicate()
        self._said.close()
        self._folder.close()

    def _has_ended(self, process: subprocess.Popen[str]) -> None:
        process.kill()
        process.communicate()
        self._process = None
        self._said.seek(0)
        said = " ".join(self._said.read().split())[-MAX_SAID:]
        self._num_ended += 1
        if self._num_answered == 0 and self._num_ended >= MAX_ENDED:
            raise SuiteError(f"the process that tries problems ended: {said or 'without a word'}")

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            processes.python("cudal1.harness.admission.probe"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            # one thread, as candidates are judged; and a fork must find no other threads
            env=processes.sparse(
                OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", TMPDIR=self._folder.path
            ),
            start_new_session=True,
        )
