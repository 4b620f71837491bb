"""Which problems can be judged: each reference is tried in a process of its own, under limits.

Somebody else's problem file may hang, crash or fill memory; that rejects the problem and loses
nothing else. What is tried is in `probe.py`.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from collections.abc import Iterator, Sequence

from cudal1.problem import Admission, Problem

TIME_LIMIT_S = 60.0
"""For one problem: import, construction, and the probe's calls."""


def admit_all(
    problems: Sequence[Problem], *, max_reference_ms: float
) -> Iterator[tuple[Problem, Admission]]:
    """Every problem with its admission, in order.

    One probing process serves problem after problem; when one brings it down, it alone is rejected
    and a new process goes on with the next.
    """
    process: _Probe | None = None
    for problem in problems:
        process = process or _Probe(max_reference_ms)
        answer = process.ask(problem.source)
        if not isinstance(answer, _Broken):
            yield problem, Admission(
                problem_id=problem.id, admitted=answer is None, reason=answer
            )
            continue
        process.close()
        process = None
        yield problem, Admission(problem_id=problem.id, admitted=False, reason=answer.reason)
    if process is not None:
        process.close()


class _Broken:
    """The probe did not answer."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Probe:
    """A running `cudal1.suite.probe`."""

    def __init__(self, max_reference_ms: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "cudal1.suite.probe", str(max_reference_ms)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
        )  # fmt: skip

    def ask(self, source: str) -> str | None | _Broken:
        """The reason to reject a source, None to admit it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(source).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return _Broken("its process died")
        with selectors.DefaultSelector() as waiting:
            waiting.register(self._process.stdout, selectors.EVENT_READ)
            if not waiting.select(TIME_LIMIT_S):
                return _Broken(f"does not finish within {TIME_LIMIT_S:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            return _Broken("brings its process down")
        return json.loads(line)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
