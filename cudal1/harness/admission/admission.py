"""Admission of problems: a look at each source, then a trial of its reference under limits.

A third party's problem file may hang, crash, exit or fill memory. That rejects the problem and
costs no other one. `probe.py` is the process that tries problems, `prober.py` asks it, and
`trial.py` lists what it looks for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import Any, Self

from pydantic import model_validator

from cudal1.harness.admission.known_references import (
    Circumstances,
    KnownReferences,
    TrialCircumstances,
)
from cudal1.harness.admission.prober import Prober
from cudal1.harness.device.device import Device
from cudal1.harness.oracle.traits import Traits
from cudal1.kill_table import KillTable
from cudal1.problem import Admission, Problem, Unreadable
from cudal1.protocol import EvalProtocol
from cudal1.record import Record

TIME_LIMIT_S = 60.0
"""Seconds for the trial of one problem: import, construction, and all calls."""
CHECK_TIMES = 10
"""Multiple of the time limit that the correctness check may take: it calls the reference often."""
UNREADABLE = "writes to where its trial is answered"


@dataclass(frozen=True)
class Check:
    """A correctness check that must tell wrong candidates of a problem from right ones."""

    protocol: EvalProtocol
    device: Device


class Probe(Record):
    """The result of trying one reference."""

    problem_id: str
    reason: str | None = None
    """Reason why the problem cannot be judged. None when it can; exactly then the rest is
    present."""
    device: str | None = None
    """Kind of device that the reference was tried on: `cpu` or `cuda`."""
    reference_us: float | None = None
    """Median µs of a few calls with one thread: for orientation; the harness measures."""
    input_effect: float | None = None
    """Relative L2 distance between outputs for different inputs, or for a change of the input that
    matters least. If it is small, a candidate that skips work may be within tolerance."""
    input_bytes: int | None = None
    output_bytes: int | None = None
    output_shapes: tuple[tuple[int, ...], ...] | None = None
    weakness: str | None = None
    """Reason why no gain counts, though candidates can be judged (`Traits.weakness`)."""
    kill_table: KillTable | None = None
    """The mutants that the correctness check notices, where a check was given. The table's
    `rejection` is no reason here: the caller decides whether such a problem is judged."""
    is_lost: bool = False
    """The device computes nothing after the trial, and may be the reason."""

    @model_validator(mode="after")
    def _seen_iff_admitted(self) -> Self:
        seen = (
            self.device,
            self.reference_us,
            self.input_effect,
            self.input_bytes,
            self.output_bytes,
            self.output_shapes,
        )
        if any((part is None) != (self.reason is not None) for part in seen):
            raise ValueError(f"reason={self.reason!r} with {seen}")
        return self

    @property
    def rejection(self) -> str | None:
        """The weakness, or the mutants that the correctness check lets through; None without."""
        table = self.kill_table
        return self.weakness or (None if table is None else table.rejection)

    @property
    def admission(self) -> Admission:
        """The admission by the trial alone; a weak reference is not admitted."""
        return self._admission(self.reason or self.weakness)

    @property
    def admission_if_told_apart(self) -> Admission:
        """The admission by the trial and by the correctness check's kill table."""
        return self._admission(self.reason or self.rejection)

    @property
    def invariants(self) -> tuple[str, ...]:
        """The properties of its inputs in every draw; empty without a correctness check."""
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
    known: KnownReferences | None = None,
) -> Probe:
    """Return the trial's result for one problem; for many, `probe_all` is far faster."""
    ((_, probe),) = probe_all(
        [problem],
        max_reference_ms=max_reference_ms,
        time_limit_s=time_limit_s,
        check=check,
        known=known,
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
    known: KnownReferences | None = None,
    prober: Prober | None = None,
) -> Iterator[tuple[Problem, Probe]]:
    """Yield every problem with its trial's result, in order, as it is tried.

    Problems are tried on a device of their class, or on the check's device. CUDA problems are tried
    on the CPU where there is no GPU.

    Args:
        problems: the problems to try.
        max_reference_ms: milliseconds that one call may take at most.
        time_limit_s: seconds for the trial of one problem; the check may take `CHECK_TIMES` as
            long.
        check: the correctness check to try with mutants; None: no check is tried.
        known: records of earlier runs with the check; this run's results are added. No process is
            started for a problem that is known.
        prober: tries them, and stays open; None: one of this call's own.

    Raises:
        SuiteError: the probing process does not start.
    """
    memory = None if known is None or check is None else Memory(known, check, max_reference_ms)
    with closing(Prober()) if prober is None else nullcontext(prober) as trying:
        for problem in problems:
            reason = flaw_of(problem)
            if reason:
                yield problem, Probe(problem_id=problem.id, reason=reason)
                continue
            probe = memory and memory.probe(problem)
            if probe:
                yield problem, probe
                continue
            traits = memory and memory.traits(problem)
            request = {
                "problem": problem.model_dump(mode="json", exclude={"flaw"}),
                "device": check.device.torch_name if check else problem.device_class.value,
                "max_reference_ms": max_reference_ms,
                "time_limit_s": time_limit_s,
                "check_limit_s": CHECK_TIMES * time_limit_s,
                "protocol": check.protocol.model_dump(mode="json") if check else None,
                "harness_device": check.device.model_dump(mode="json") if check else None,
                "traits": traits.model_dump(mode="json") if traits else None,
            }
            found = found_in(problem, trying.ask(request, 2 if check else 1))
            if memory:
                memory.keep(problem, found)
            yield problem, found.probe


class Memory:
    """The known results for references under one check."""

    def __init__(self, known: KnownReferences, check: Check, max_reference_ms: float) -> None:
        self._known = known
        self._check = check
        self._max_reference_us = max_reference_ms * 1000

    def probe(self, problem: Problem) -> Probe | None:
        """Return a problem's known trial, unless the reference was too slow for this run."""
        probe = self._known.find(self._of_trial(problem), Probe)
        is_slow = probe is not None and (probe.reference_us or 0.0) > self._max_reference_us
        return None if is_slow else probe

    def traits(self, problem: Problem) -> Traits | None:
        """Return what was learned of a reference, maybe under another contract."""
        return self._known.find(self._of_oracle(problem), Traits)

    def keep(self, problem: Problem, found: Found) -> None:
        """Store the results that follow from the problem alone, not from the current conditions."""
        if found.lasts:
            self._known.keep(self._of_trial(problem), found.probe)
        if found.traits is not None and not found.traits.work.lacked_memory:
            self._known.keep(self._of_oracle(problem), found.traits)

    def _of_trial(self, problem: Problem) -> TrialCircumstances:
        return TrialCircumstances.of(problem, self._check.protocol, self._check.device)

    def _of_oracle(self, problem: Problem) -> Circumstances:
        return Circumstances.of(problem, self._check.protocol, self._check.device)


@dataclass(frozen=True)
class Found:
    """The result of the process that tries one problem."""

    probe: Probe
    traits: Traits | None = None
    lasts: bool = False
    """True if another trial would find the same: no time, memory or device decided the result."""

    @property
    def reason(self) -> str | None:
        """The reason why the problem cannot be judged; None: it can."""
        return self.probe.reason

    @property
    def call_bytes(self) -> int:
        """Bytes of a call's inputs and outputs; 0 where the problem cannot be judged."""
        return (self.probe.input_bytes or 0) + (self.probe.output_bytes or 0)

    @property
    def note(self) -> str | None:
        """The reason why a correct verdict says little, if there is one."""
        return self.probe.rejection

    @property
    def invariants(self) -> tuple[str, ...]:
        """The properties of the problem's inputs in every draw, if a check has looked."""
        return self.probe.invariants


def found_in(problem: Problem, answers: Sequence[dict[str, Any]]) -> Found:
    """Return a problem's result from its process's answers, which may be anything."""
    failed = next((answer for answer in answers if answer.get("reason") is not None), None)
    if failed is not None:
        reason = str(failed["reason"]).removeprefix(f"{problem.key}: ")
        is_lost = bool(failed.get("is_lost"))
        probe = Probe(problem_id=problem.id, reason=reason, is_lost=is_lost)
        return Found(probe, lasts=failed.get("lasts") is True)
    seen, *checked = answers
    lasts = seen.pop("lasts", None) is True
    try:
        table = traits = None
        if checked:
            table = KillTable.model_validate(checked[0]["table"])
            traits = Traits.model_validate(checked[0]["traits"])
            if table.problem_id != problem.id:
                raise ValueError(f"of problem {table.problem_id}")
            seen |= {"input_effect": traits.input_effect, "weakness": traits.weakness}
        probe = Probe.model_validate({**seen, "problem_id": problem.id, "kill_table": table})
    except (ValueError, KeyError):  # pydantic's errors are ValueErrors
        return Found(Probe(problem_id=problem.id, reason=UNREADABLE))
    return Found(probe, traits, lasts=lasts)


def flaw_of(problem: Problem) -> str | None:
    """Return why a source cannot be a problem, from its file or its syntax tree; else None."""
    if isinstance(problem, Unreadable):
        return problem.flaw
    try:
        ast.parse(problem.source)
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte
        return f"is not valid Python ({' '.join(str(error).split())})"
    except (RecursionError, MemoryError):
        return "is not valid Python (nested too deeply)"
    return None
