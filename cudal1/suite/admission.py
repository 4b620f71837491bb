"""Which problems can be judged: what the source shows, then a trial of the reference under limits.

Somebody else's problem file may hang, crash or fill memory; that rejects the problem and loses
nothing else. The process that tries them is `probe.py`, what it looks for is `trial.py`.
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Self

from pydantic import model_validator

from cudal1.errors import SuiteError
from cudal1.problem import Admission, Problem
from cudal1.record import Record
from cudal1.suite.loader import Unreadable

TIME_LIMIT_S = 60.0
"""For one problem: import, construction, and all calls of the trial."""
REQUIRED = ("Model", "get_inputs", "get_init_inputs")
KEPT_ENVIRONMENT = (
    "PATH", "HOME", "LANG", "TMPDIR", "PYTHONPATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH",
    "CUDA_HOME", "CUDA_VISIBLE_DEVICES", "HF_HOME", "HF_HUB_OFFLINE",
)  # fmt: skip
"""What problem files may see of ours: no keys."""


class Probe(Record):
    """What was seen of a reference when it was tried."""

    problem_id: str
    reason: str | None = None
    """Why it cannot be judged; None when it can, and exactly then the rest is present."""
    device: str | None = None
    """`cpu` or `cuda`: where it was tried."""
    reference_us: float | None = None
    """Median of a few calls with one thread: for orientation; the harness measures."""
    input_effect: float | None = None
    """Relative L2 distance between outputs for different inputs, or for a change of the one that
    matters least. Small: a candidate that skips work may still be within tolerance."""
    input_bytes: int | None = None
    output_bytes: int | None = None
    output_shapes: tuple[tuple[int, ...], ...] | None = None

    @model_validator(mode="after")
    def _seen_iff_admitted(self) -> Self:
        seen = (
            self.device, self.reference_us, self.input_effect, self.input_bytes, self.output_bytes,
            self.output_shapes,
        )  # fmt: skip
        if any((part is None) != (self.reason is not None) for part in seen):
            raise ValueError(f"reason={self.reason!r} with {seen}")
        return self

    @property
    def admission(self) -> Admission:
        """The verdict alone."""
        return Admission(
            problem_id=self.problem_id, admitted=self.reason is None, reason=self.reason
        )


def admit(
    problem: Problem, *, max_reference_ms: float, time_limit_s: float = TIME_LIMIT_S
) -> Admission:
    """Whether one problem can be judged. For many, `admit_all` is far faster."""
    ((_, admission),) = admit_all(
        [problem], max_reference_ms=max_reference_ms, time_limit_s=time_limit_s
    )
    return admission


def admit_all(
    problems: Sequence[Problem], *, max_reference_ms: float, time_limit_s: float = TIME_LIMIT_S
) -> Iterator[tuple[Problem, Admission]]:
    """Every problem with its admission, in order."""
    for problem, probe in probe_all(
        problems, max_reference_ms=max_reference_ms, time_limit_s=time_limit_s
    ):
        yield problem, probe.admission


def probe_all(
    problems: Sequence[Problem], *, max_reference_ms: float, time_limit_s: float = TIME_LIMIT_S
) -> Iterator[tuple[Problem, Probe]]:
    """Every problem with what was seen of it, in order, as it is tried.

    Problems are tried on a device of their class; CUDA problems on the CPU where there is no GPU.

    Raises:
        SuiteError: the probing process itself cannot be kept running.
    """
    prober = _Prober()
    try:
        for problem in problems:
            reason = _known_reason(problem)
            seen: dict[str, Any] = {"reason": reason} if reason else prober.ask(
                {
                    "source": problem.source, "device": problem.device_class.value,
                    "max_reference_ms": max_reference_ms, "time_limit_s": time_limit_s,
                }
            )  # fmt: skip
            yield problem, Probe(problem_id=problem.id, **seen)
    finally:
        prober.close()


def _known_reason(problem: Problem) -> str | None:
    """Why a source cannot be a problem, from its file or its syntax tree."""
    if isinstance(problem, Unreadable):
        return problem.flaw
    try:
        tree = ast.parse(problem.source)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        return f"is not valid Python ({' '.join(str(error).split())})"
    except (RecursionError, MemoryError):
        return "is not valid Python (nested too deeply)"
    bound = {name for node in tree.body for name in _names_bound(node)}
    missing = [name for name in REQUIRED if name not in bound]
    return f"defines no {missing[0]}" if missing else None


def _names_bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
        case _:
            return []


class _Prober:
    """`cudal1.suite.probe`, started when first asked."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            line = process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise SuiteError(
                "the process that tries problems ended; `python -m cudal1.suite.probe` shows why"
            )
        return json.loads(line)

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()

    @staticmethod
    def _start() -> subprocess.Popen[str]:
        kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
        return subprocess.Popen(
            [sys.executable, "-m", "cudal1.suite.probe"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            # one thread, as candidates are judged; and a fork must find no other threads
            env={**kept, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            start_new_session=True,
        )  # fmt: skip
