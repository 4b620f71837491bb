"""Judge kept versions again: are they still correct, and as fast as proven?

Each proof that was made on a device like this one's is judged by a fresh verdict, under the proof's
own protocol. Where the verdict seems slower than proven, more are asked for, until the test of
`slowdown` says so twice. Everything of a folder is data here: problems run in their own processes,
versions in the sandbox.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

import psutil

from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.errors import CudaL1Error, DeviceError, SandboxError, StoreError
from cudal1.harness.device.device import Device
from cudal1.harness.judgement import Judgement
from cudal1.kept import Kept, Proof
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.record import content_id
from cudal1.services import keeping
from cudal1.services.checking import slowdown
from cudal1.services.checking.finding import Finding, State
from cudal1.services.checking.here import Judge
from cudal1.services.checking.sessions import IncorrectAgain, sessions, still_correct
from cudal1.suite.loader import load_file

BUSY = 0.1
"""Share of all cores that other programs may use while a slowdown on a CPU is measured. On a busy
machine bursts are told by computed time, and that moves speedups by some per cent: with 6 processes
for 2 cores a version was measured at 1.40x that is 1.48x on a calm one."""
LOOK_S = 0.3
"""Seconds for which a look at the use of the machine lasts, while no measurement runs."""


def share_of_others() -> float:
    """Return the share of all cores that programs use, while none of ours computes."""
    return psutil.cpu_percent(interval=LOOK_S) / 100


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
    except IncorrectAgain as again:
        found = checked.finding(State.WRONG, str(again), verdict=again.verdict)
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
            series = sessions(problem, candidate, checked.proof.protocol, judge)
            every += series
        while slowdown.seems_slower(series, proven) and len(series) < slowdown.SERIES:
            shares.append(checked.share_of_others())
            more = sessions(problem, candidate, checked.proof.protocol, judge)
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
            measured = still_correct(again).measurement
            every += keeping.session_speedups(again)
            found |= {"sessions": every, "speedup": median(every)}
    sentence = f"{_sentence(checked.proven, every)}, by the bounds of two verdicts; {few}"
    return checked.finding(State.SLOWER, sentence, **found)


def _is_below(measured: Measurement | None, limit: float) -> bool:
    return measured is not None and measured.upper is not None and measured.upper < limit


def _sentence(proven: float, sessions: Sequence[float]) -> str:
    now = median(sessions)
    return f"{now:.3f}x where {proven:.3f}x was proven ({now / proven - 1:+.1%})"
