"""Judge kept versions again: are they still correct, and as fast as proven?

Each proof that was made on a device like this one's is judged by a fresh verdict, under the proof's
own protocol. Where the verdict seems slower than proven, more are asked for, until the test of
`slowdown` says so twice. Everything of a folder is data here: problems run in their own processes,
versions in the sandbox.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from functools import partial
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Self

import psutil

from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.errors import CudaL1Error, DeviceError, SandboxError, StoreError, SuiteError
from cudal1.harness.admission import known_references
from cudal1.harness.admission.admission import Check, admit
from cudal1.harness.builds import toolchain
from cudal1.harness.builds.build_cache import default_folder
from cudal1.harness.builds.builder import Builder, may_compile
from cudal1.harness.device.device import Device, find_devices
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.device_processes import DeviceProcess, processes_found_here
from cudal1.harness.schedule.one_device import OneDevice
from cudal1.kept import Kept, Proof
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.record import Record, content_id
from cudal1.services import keeping, slowdown
from cudal1.suite.loader import load_file
from cudal1.verdict import Verdict

Judge = Callable[[Problem, Candidate, EvalProtocol], Judgement]
"""A function that judges a candidate in fresh processes, under a protocol.

It raises SuiteError where it cannot."""


class State(StrEnum):
    """The outcome of checking one proof."""

    FINE = "fine"
    """Correct, and not shown to be slower than proven."""
    SLOWER = "slower"
    """Correct, and certified to be slower than proven by more than the margin."""
    WRONG = "wrong"
    """Not correct: the first gate that failed is the reason."""
    CHANGED = "changed"
    """The reference or the version is not what was proven, so nothing is proven of it."""
    ELSEWHERE = "elsewhere"
    """Proven on another kind of device or processor: not judged here."""
    UNJUDGED = "unjudged"
    """It could not be judged here, for a reason that says nothing of the version."""


WORSE = frozenset({State.SLOWER, State.WRONG, State.CHANGED})
"""States that a person has to look at."""


BUSY = 0.1
"""Share of all cores that other programs may use while a slowdown on a CPU is measured. On a busy
machine bursts are told by computed time, and that moves speedups by some per cent: with 6 processes
for 2 cores a version was measured at 1.40x that is 1.48x on a calm one."""
LOOK_S = 0.3
"""Seconds for which a look at the use of the machine lasts, while no measurement runs."""


def share_of_others() -> float:
    """Return the share of all cores that programs use, while none of ours computes."""
    return psutil.cpu_percent(interval=LOOK_S) / 100


class Finding(Record):
    """The result of checking one proof."""

    record: str
    """Path of the record."""
    problem: str
    """Path of the problem's file, as the record names it."""
    version: str
    """Path of the version's file, as the record names it."""
    device_kind: str
    """Kind of device of the proof."""
    state: State
    reason: str
    """The finding in one line."""
    proven: float
    """Speedup that was proven: the median of the record's sessions, or the verdict's estimate."""
    speedup: float | None = None
    """Speedup of today: the median of all sessions; None where nothing was timed."""
    sessions: tuple[float, ...] = ()
    """Speedups of today's measurements in fresh processes, in their order."""
    p_value: float | None = None
    """Probability of a series as slow as the last one, were the version as fast as proven; None
    where no series was needed."""
    detects: float | None = None
    """Least slowdown that this record lets a check find in 19 of 20 cases, as a share of time; None
    where the record has too few sessions."""
    changed_versions: tuple[str, ...] = ()
    """Software that was changed since, such as `torch 2.12.0 → 2.13.0`."""
    verdict: Verdict | None = None
    """Today's first verdict, where there is one."""
    took_s: float = 0.0
    """Seconds that the check of this proof took."""


def exit_code(findings: Sequence[Finding]) -> int:
    """Return 1 if something is worse, 2 if something could not be judged or nothing was, else 0."""
    states = {finding.state for finding in findings}
    if states & WORSE:
        return 1
    return 2 if State.UNJUDGED in states or State.FINE not in states else 0


class Here:
    """A device of this machine to judge kept versions on, held alone while it is open.

    Args:
        device_class: the class of device.
        max_reference_ms: milliseconds that one call of a reference may take.
        time_limit_s: seconds that the trial of one reference may take.
        wait_s: for how many seconds to wait for a device that another judge holds.
    """

    def __init__(
        self,
        device_class: DeviceClass,
        *,
        max_reference_ms: float,
        time_limit_s: float,
        wait_s: float = 0.0,
    ) -> None:
        self._device_class = device_class
        self._max_reference_ms = max_reference_ms
        self._time_limit_s = time_limit_s
        self._wait_s = wait_s
        self._stack = ExitStack()
        self._judging = ExitStack()
        self._protocol_id = ""
        self._one: OneDevice | None = None
        self._process: DeviceProcess | None = None
        self._admitted: set[tuple[str, str]] = set()

    def __enter__(self) -> Self:
        """Find the device.

        Raises:
            DeviceError: there is none.
        """
        with ExitStack() as opening:
            find = partial(find_devices, self._device_class)
            (self._process, *_) = opening.enter_context(processes_found_here(find))
            opening.callback(self._close)
            self._stack = opening.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @property
    def device(self) -> Device:
        """The device."""
        assert self._process is not None, "it is not open"
        return self._process.device

    def judge(self, problem: Problem, candidate: Candidate, protocol: EvalProtocol) -> Judgement:
        """Return a judgement in fresh processes.

        Raises:
            SuiteError: it cannot be judged here; the message says why.
            DeviceError: another process is judging on the device.
        """
        if missing := toolchain.missing_for(candidate.source, self._device_class):
            raise SuiteError(f"it {toolchain.remedy(missing)}")
        if (problem.id, protocol.id) not in self._admitted:
            probe = admit(
                problem,
                max_reference_ms=self._max_reference_ms,
                time_limit_s=self._time_limit_s,
                check=Check(protocol, self.device),
                known=known_references.of_this_user(),
            )
            if probe.reason is not None:
                raise SuiteError(f"its reference {probe.reason}")
            self._admitted.add((problem.id, protocol.id))
        return self._under(protocol, candidate).judge(problem, candidate)

    def _under(self, protocol: EvalProtocol, candidate: Candidate) -> OneDevice:
        """Return the judge under a protocol; one is open at a time, for it holds the device."""
        compiles = may_compile(candidate.source, self._device_class)
        wanted = f"{protocol.id} {compiles}"
        if self._one is None or self._protocol_id != wanted:
            self._close()
            with ExitStack() as opening:
                builder = None
                if compiles:
                    builder = opening.enter_context(
                        Builder([self.device], protocol, default_folder())
                    )
                self._one = opening.enter_context(
                    OneDevice(
                        self.device,
                        protocol,
                        wait_s=self._wait_s,
                        builder=builder,
                        device_process=self._process,
                    )
                )
                self._judging = opening.pop_all()
            self._protocol_id = wanted
        return self._one

    def _close(self) -> None:
        self._one = None
        self._judging.close()


def check_all(paths: Iterable[Path], judge: Judge, device: Device) -> Iterator[Finding]:
    """Yield a finding on each proof of these records, as it is judged.

    Raises:
        StoreError: a file is no record.
        DeviceError: another process is judging on the device.
    """
    for path in paths:
        kept = records.read(path)
        for proof in kept.proofs:
            yield check(path, kept, proof, judge, device)


def check(path: Path, kept: Kept, proof: Proof, judge: Judge, device: Device) -> Finding:
    """Return the finding on one proof.

    Raises:
        DeviceError: another process is judging on the device.
    """
    began = time.monotonic()
    checked = _Checked(path, kept, proof, device)
    elsewhere = _elsewhere(proof, device)
    if elsewhere is not None:
        return checked.finding(State.ELSEWHERE, elsewhere)
    try:
        problem, source, changed = proven_pair(path, kept, proof)
        found = _judged(checked, problem, source, changed, judge)
    except _IncorrectAgain as again:
        said = f"correct only sometimes: {again.verdict.status}: {again.verdict.reason}"
        found = checked.finding(State.WRONG, said, verdict=again.verdict)
    except (DeviceError, SandboxError, StoreError):
        raise
    except CudaL1Error as error:
        found = checked.finding(State.UNJUDGED, str(error))
    return found.model_copy(update={"took_s": time.monotonic() - began})


def proven_pair(path: Path, kept: Kept, proof: Proof) -> tuple[Problem, str, tuple[str, ...]]:
    """Return a proof's problem, the version's source, and what of both is not as it was proven.

    Raises:
        SuiteError: a file cannot be read.
    """
    problem = load_file(records.beside(path, proof.problem), device_class=proof.device_class)
    source = records.read_version(path, kept)
    changed: list[str] = []
    if problem.id != proof.problem_id:
        changed.append(f"the reference {proof.problem} was changed since")
    if content_id(source) != kept.candidate_source_id:
        changed.append(f"the version {kept.version} was edited since")
    elif not changed and not records.is_of(proof, problem.id, source):
        changed.append(f"the proof is of another version than {kept.version}")
    return problem, source, tuple(changed)


def proven_anew(
    path: Path, kept: Kept, proof: Proof, finding: Finding, judge: Judge, device: Device
) -> Proof | None:
    """Return a proof by today's verdict and a full baseline; None where today's is no proof.

    Raises:
        SuiteError: it cannot be judged here.
        DeviceError: another process is judging on the device.
    """
    verdict = finding.verdict
    if verdict is None or not verdict.is_successful or (verdict.speedup or 0.0) <= 1.0:
        return None
    problem, source, _ = proven_pair(path, kept, proof)
    candidate = Candidate(problem_id=problem.id, source=source)
    if verdict.candidate_id != candidate.id:
        return None  # edited while it was judged
    sessions = finding.sessions[-slowdown.BASELINE :]
    while len(sessions) < slowdown.BASELINE:
        judgement = judge(problem, candidate, proof.protocol)
        if not judgement.verdict.is_successful:
            return None
        sessions += keeping.session_speedups(judgement)
    return keeping.proof_of(
        problem,
        proof.problem,
        verdict,
        device=device,
        protocol=proof.protocol,
        inputs=proof.inputs,
        sessions=sessions[: slowdown.BASELINE],
        invariants=proof.invariants,
    )


def update(path: Path, findings: Sequence[Finding], judge: Judge, device: Device) -> Iterator[str]:
    """Write today's verdicts into a record, and yield a line on each of its proofs.

    A proof of another device stays as it is. One that is wrong, not certified faster or not judged
    stays too, for a person to take out. Where the version was edited, only proofs of today's hold,
    and the others are taken out.

    Args:
        path: the record.
        findings: one for each of its proofs, in their order.
        judge: judges in fresh processes.
        device: the device that it judges on.

    Raises:
        StoreError: the record cannot be written; the old one is still there.
    """
    kept = records.read(path)
    source_id = content_id(records.read_version(path, kept))
    renewed: list[Proof | None] = []
    for proof, finding in zip(kept.proofs, findings, strict=True):
        anew = None
        if finding.state is not State.ELSEWHERE:
            try:
                anew = proven_anew(path, kept, proof, finding, judge, device)
            except SuiteError as error:
                yield f"{path}: {proof.problem}: not judged again: {error}"
        renewed.append(anew)
    if not any(renewed):
        yield f"{path}: left as it was: today's verdicts prove nothing new"
        return
    is_edited = source_id != kept.candidate_source_id
    proofs: list[Proof] = []
    for proof, anew in zip(kept.proofs, renewed, strict=True):
        said = f"{path}: {proof.problem} on {proof.verdict.device_kind}"
        if anew is not None:
            proofs.append(anew)
            yield f"{said}: proven anew, {median(anew.sessions):.3f}x"
        elif is_edited:
            yield f"{said}: taken out: it is of the version before it was edited"
        else:
            proofs.append(proof)
            yield f"{said}: left as it was"
    changes = {"proofs": tuple(proofs), "candidate_source_id": source_id}
    records.write_record(path, kept.model_copy(update=changes))


def _elsewhere(proof: Proof, device: Device) -> str | None:
    """Return why a proof cannot be judged on a device; None: it can."""
    if proof.device_class is not device.device_class:
        return f"proven on {proof.device_class}; this check is on {device.device_class}"
    if proof.verdict.device_kind != device.kind:
        return f"proven on {proof.verdict.device_kind}; here is {device.kind}"
    proven, here = proof.versions.get("processor"), keeping.processor_name()
    if device.device_class is not DeviceClass.CUDA and proven not in (None, here):
        return f"proven on {proven}; here is {here}"
    return None


class _IncorrectAgain(Exception):
    """A repeated verdict is not correct, and the one before was."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.candidate_id)
        self.verdict = verdict


class _Checked:
    """A proof, with all that is known of it before it is judged."""

    def __init__(self, path: Path, kept: Kept, proof: Proof, device: Device) -> None:
        self.proof = proof
        self.measured = proof.verdict.measurement
        estimate = self.measured.speedup if self.measured else 1.0
        self.proven = median(proof.sessions) if proof.sessions else estimate
        here = keeping.versions_of(device)
        self._common = {
            "record": str(path),
            "problem": proof.problem,
            "version": kept.version,
            "device_kind": proof.verdict.device_kind,
            "proven": self.proven,
            "detects": slowdown.detectable(proof.sessions),
            "changed_versions": tuple(
                f"{name} {old} → {here.get(name, 'none')}"
                for name, old in proof.versions.items()
                if here.get(name, "none") != old
            ),
        }

    def share_of_others(self) -> float:
        """Return the share of the machine that disturbs measurements; on a GPU none does."""
        return 0.0 if self.proof.device_class is DeviceClass.CUDA else share_of_others()

    def finding(self, state: State, reason: str, **found: object) -> Finding:
        """Return a finding on the proof."""
        return Finding.model_validate({**self._common, "state": state, "reason": reason, **found})


def _judged(
    checked: _Checked, problem: Problem, source: str, changed: tuple[str, ...], judge: Judge
) -> Finding:
    proof = checked.proof
    candidate = Candidate(problem_id=problem.id, source=source)
    first = judge(problem, candidate, proof.protocol)
    verdict, sessions = first.verdict, keeping.session_speedups(first)
    found: dict[str, object] = {"verdict": verdict, "sessions": sessions}
    if sessions:
        found["speedup"] = median(sessions)
    if not verdict.is_successful:
        because = "; ".join((*changed, f"{verdict.status}: {verdict.reason}"))
        return checked.finding(State.WRONG, because, **found)
    if changed:
        said = f"{'; '.join(changed)}; today's is correct, certified {verdict.speedup or 1.0:.2f}x"
        return checked.finding(State.CHANGED, said, **found)
    if verdict.measurement is None or not sessions:
        return checked.finding(State.FINE, "correct; nothing was timed", **found)
    if len(proof.sessions) < slowdown.LEAST_BASELINE:
        return _by_bounds(checked, problem, candidate, first, judge, found)
    return _by_sessions(checked, problem, candidate, sessions, judge, found)


def _by_sessions(
    checked: _Checked,
    problem: Problem,
    candidate: Candidate,
    first: tuple[float, ...],
    judge: Judge,
    found: dict[str, object],
) -> Finding:
    """Return the finding by the test of `slowdown`, with as many more verdicts as it takes."""
    proven = checked.proof.sessions
    every, series = first, first
    p = None
    shares: list[float] = []
    for _ in range(2):
        if not series:
            shares.append(checked.share_of_others())
            series = _sessions(problem, candidate, checked.proof.protocol, judge)
            every += series
        while slowdown.seems_slower(series, proven) and len(series) < slowdown.SERIES:
            shares.append(checked.share_of_others())
            more = _sessions(problem, candidate, checked.proof.protocol, judge)
            series, every = series + more, every + more
        found |= {"sessions": every, "speedup": median(every)}
        if not slowdown.seems_slower(series, proven):
            return checked.finding(State.FINE, _sentence(checked.proven, every), **found)
        p = slowdown.p_value(series[: slowdown.SERIES], proven)
        found["p_value"] = p
        if p > slowdown.ALPHA:
            return checked.finding(State.FINE, _sentence(checked.proven, every), **found)
        series = ()
    if (share := median(shares)) > BUSY:
        said = f"seems slower: {_sentence(checked.proven, every)}; but other programs used "
        said += f"{share:.0%} of the machine: check it when it is calm"
        return checked.finding(State.UNJUDGED, said, **found)
    said = f"{_sentence(checked.proven, every)}, certified at {slowdown.ALPHA}"
    return checked.finding(State.SLOWER, said, **found)


def _by_bounds(
    checked: _Checked,
    problem: Problem,
    candidate: Candidate,
    first: Judgement,
    judge: Judge,
    found: dict[str, object],
) -> Finding:
    """Return the finding by two verdicts' upper bounds, where the record has too few sessions.

    Two processes may differ by as much as `confirm_below` says, beside what the bounds cover.
    """
    proof, said = checked.proof, checked.measured
    few = "its record has too few sessions; cudal1 check --update measures them"
    least = said.lower if said is not None else None
    if least is None:
        return checked.finding(State.FINE, f"correct; {few}", **found)
    limit = least / proof.protocol.confirm_below
    measured, every = first.verdict.measurement, keeping.session_speedups(first)
    for repeat in (True, False):
        if not _is_below(measured, limit):
            sentence = f"{_sentence(checked.proven, every)}; {few}"
            return checked.finding(State.FINE, sentence, **found)
        if repeat:
            again = judge(problem, candidate, proof.protocol)
            measured = _still_correct(again).measurement
            every += keeping.session_speedups(again)
            found |= {"sessions": every, "speedup": median(every)}
    sentence = f"{_sentence(checked.proven, every)}, by the bounds of two verdicts; {few}"
    return checked.finding(State.SLOWER, sentence, **found)


def _is_below(measured: Measurement | None, limit: float) -> bool:
    return measured is not None and measured.upper is not None and measured.upper < limit


def _sessions(
    problem: Problem, candidate: Candidate, protocol: EvalProtocol, judge: Judge
) -> tuple[float, ...]:
    judgement = judge(problem, candidate, protocol)
    _still_correct(judgement)
    found = keeping.session_speedups(judgement)
    if not found:
        raise SuiteError("a verdict has no times; report it as a fault of cudal1")
    return found


def _still_correct(judgement: Judgement) -> Verdict:
    """Return a repeated verdict, or raise `_IncorrectAgain`."""
    if not judgement.verdict.is_successful:
        raise _IncorrectAgain(judgement.verdict)
    return judgement.verdict


def _sentence(proven: float, sessions: Sequence[float]) -> str:
    now = median(sessions)
    return f"{now:.3f}x where {proven:.3f}x was proven ({now / proven - 1:+.1%})"
