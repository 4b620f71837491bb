"""Measure a version again in fresh processes: the sessions that records and checks compare."""

from __future__ import annotations

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.harness.judgement import Judgement
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from cudal1.services import keeping
from cudal1.services.checking import slowdown
from cudal1.services.checking.here import Judge
from cudal1.verdict import Verdict


class IncorrectAgain(Exception):
    """A repeated verdict is not correct, and the one before was."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.candidate_id)
        self.verdict = verdict

    def __str__(self) -> str:
        """Return the failure in words."""
        return f"correct only sometimes: {self.verdict.status}: {self.verdict.reason}"


def sessions(
    problem: Problem, candidate: Candidate, protocol: EvalProtocol, judge: Judge
) -> tuple[float, ...]:
    """Return the speedups of one more verdict, each from processes of its own.

    Raises:
        IncorrectAgain: the candidate is not correct this time.
        SuiteError: it cannot be judged here.
        DeviceError: another process is judging on the device.
    """
    judgement = judge(problem, candidate, protocol)
    still_correct(judgement)
    found = keeping.session_speedups(judgement)
    if not found:
        raise SuiteError("a verdict has no times; report it as a fault of cudal1")
    return found


def baseline(
    problem: Problem,
    candidate: Candidate,
    protocol: EvalProtocol,
    judge: Judge,
    known: tuple[float, ...] = (),
) -> tuple[float, ...]:
    """Return as many sessions as a record has for comparison, with as many verdicts as it takes.

    Args:
        problem: the problem.
        candidate: a version of it that was judged correct.
        protocol: the protocol to judge under.
        judge: judges in fresh processes.
        known: sessions that are there; the newest are taken first.

    Raises:
        IncorrectAgain: the version is not correct this time.
        SuiteError: it cannot be judged here.
        DeviceError: another process is judging on the device.
    """
    found = known[-slowdown.BASELINE :]
    while len(found) < slowdown.BASELINE:
        found += sessions(problem, candidate, protocol, judge)
    return found[: slowdown.BASELINE]


def still_correct(judgement: Judgement) -> Verdict:
    """Return a repeated verdict.

    Raises:
        IncorrectAgain: it is not correct.
    """
    if not judgement.verdict.is_successful:
        raise IncorrectAgain(judgement.verdict)
    return judgement.verdict
