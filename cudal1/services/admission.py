"""Which problems can be judged: what the source shows, then a trial of the reference under limits.

Somebody else's problem file may hang, crash, exit or fill memory; that rejects the problem and
costs no other one. The process that tries them is `probe.py`, what it looks for is `trial.py`.
"""

from __future__ import annotations

import ast
import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

from pydantic import ValidationError, model_validator

from cudal1 import processes
from cudal1.errors import SuiteError
from cudal1.harness.device import Device
from cudal1.harness.scratch import Scratch
from cudal1.kill_table import KillTable
from cudal1.problem import Admission, Problem
from cudal1.protocol import EvalProtocol
from cudal1.record import Record
from cudal1.suite.loader import Unreadable

TIME_LIMIT_S = 60.0
"""Seconds for the trial of one problem: import, construction, and all calls."""
CHECK_TIMES = 10
"""The correctness check may take so many times as long: it calls the reference often."""
END_LIMIT_S = 10.0
"""Seconds in which a process ends that is asked nothing any more."""
MAX_ENDED = 2
"""Processes that may end before they have answered anything."""
UNREADABLE = "writes to where its trial is answered"
MAX_SAID = 300
"""Characters of a process's last words that are shown."""


@dataclass(frozen=True)
class Check:
    """The correctness check that a problem must be told apart by."""

    protocol: EvalProtocol
    device: Device


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
    kill_table: KillTable | None = None
    """What the correctness check would notice, where one was given; its `rejection` is no reason
    here: who asked decides whether such a problem is judged."""
    is_lost: bool = False
    """The device computes no more, and may be the reason."""

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
    def rejection(self) -> str | None:
        """What the correctness check would let through; None: nothing, or it was not asked."""
        return None if self.kill_table is None else self.kill_table.rejection

    @property
    def admission(self) -> Admission:
        """The verdict alone."""
        return self._admission(self.reason)

    @property
    def admission_if_told_apart(self) -> Admission:
        """The verdict of who also asks that the check tells wrong candidates from right ones."""
        return self._admission(self.reason or self.rejection)

    @property
    def invariants(self) -> tuple[str, ...]:
        """What holds of its inputs in every draw, where the correctness check was tried."""
        return () if self.kill_table is None else self.kill_table.invariants

    def _admission(self, reason: str | None) -> Admission:
        return Admission(
            problem_id=self.problem_id,
            admitted=reason is None,
            reason=reason,
            invariants=self.invariants,
        )


def admit(
    problem: Problem,
    *,
    max_reference_ms: float,
    time_limit_s: float = TIME_LIMIT_S,
    check: Check | None = None,
) -> Probe:
    """Return what was seen of one problem. For many, `probe_all` is far faster."""
    ((_, probe),) = probe_all(
        [problem], max_reference_ms=max_reference_ms, time_limit_s=time_limit_s, check=check
    )
    return probe


def admit_all(
    problems: Sequence[Problem], *, max_reference_ms: float, time_limit_s: float = TIME_LIMIT_S
) -> Iterator[tuple[Problem, Admission]]:
    """Yield every problem with its admission, in order."""
    for problem, probe in probe_all(
        problems, max_reference_ms=max_reference_ms, time_limit_s=time_limit_s
    ):
        yield problem, probe.admission


def probe_all(
    problems: Sequence[Problem],
    *,
    max_reference_ms: float,
    time_limit_s: float = TIME_LIMIT_S,
    check: Check | None = None,
) -> Iterator[tuple[Problem, Probe]]:
    """Yield every problem with what was seen of it, in order, as it is tried.

    Problems are tried on a device of their class, or on that of the check; CUDA problems on the CPU
    where there is no GPU.

    Raises:
        SuiteError: the probing process does not start.
    """
    prober = _Prober()
    try:
        for problem in problems:
            reason = _known_reason(problem)
            if reason:
                yield problem, Probe(problem_id=problem.id, reason=reason)
                continue
            request = {
                "problem": problem.model_dump(mode="json", exclude={"flaw"}),
                "device": check.device.torch_name if check else problem.device_class.value,
                "max_reference_ms": max_reference_ms,
                "time_limit_s": time_limit_s,
                "check_limit_s": CHECK_TIMES * time_limit_s,
                "protocol": check.protocol.model_dump(mode="json") if check else None,
                "harness_device": check.device.model_dump(mode="json") if check else None,
                "traits": None,
            }
            yield problem, _probe(problem, prober.ask(request, 2 if check else 1))
    finally:
        prober.close()


def _probe(problem: Problem, answers: list[dict[str, Any]]) -> Probe:
    failed = next((answer for answer in answers if answer.get("reason") is not None), None)
    if failed is not None:
        reason = str(failed["reason"]).removeprefix(f"{problem.key}: ")
        is_lost = bool(failed.get("is_lost"))
        return Probe(problem_id=problem.id, reason=reason, is_lost=is_lost)
    seen, *checked = answers
    try:
        table = KillTable.model_validate(checked[0]["table"]) if checked else None
        return Probe.model_validate({"problem_id": problem.id, **seen, "kill_table": table})
    except (ValidationError, KeyError):
        return Probe(problem_id=problem.id, reason=UNREADABLE)


def _known_reason(problem: Problem) -> str | None:
    """Why a source cannot be a problem, from its file or its syntax tree."""
    if isinstance(problem, Unreadable):
        return problem.flaw
    try:
        ast.parse(problem.source)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        return f"is not valid Python ({' '.join(str(error).split())})"
    except (RecursionError, MemoryError):
        return "is not valid Python (nested too deeply)"
    return None


class _Prober:
    """`cudal1.services.probe`, started when first asked, and again when it has ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        # closed with the process
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._folder = Scratch("cudal1-trials-")
        self._is_asking = False
        self._num_answered = 0
        self._num_ended = 0

    def ask(self, request: dict[str, Any], count: int) -> list[dict[str, Any]]:
        """Return up to `count` answers, of which one with a reason is the last.

        A problem that ends the process itself is refused for that, and the next one has another.

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
        """End the process, which clears up after the last problem unless one is being tried."""
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
            processes.python("cudal1.services.probe"),
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
