"""Tests of what is measured again, and when a find counts as proven."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import SuiteError
from cudal1.ledger import Ledger
from cudal1.problem import Problem
from cudal1.services.checking.sessions import IncorrectAgain
from cudal1.services.judging import VerdictSource
from cudal1.services.optimizing.keeping import MOST_TRIED, ProvenFind, proven
from cudal1.services.optimizing.state import Find
from cudal1.verdict import Status, Verdict
from tests.services.kept_verdicts import verdict_of
from tests.tasks.played import toys

PROBLEM = toys("rows")[0]
SESSIONS = tuple(1.5 + number / 100 for number in range(10))


class Again:
    """A second measurement that finds such speedups, and sessions of its own."""

    def __init__(self, *speedups: float) -> None:
        self.speedups = list(speedups)
        self.said: list[str] = []
        self.measured: list[str] = []
        self.fails: Callable[[Candidate], Exception | None] = lambda _: None

    def judge_all(self, asked: Sequence[tuple[Problem, Candidate]]) -> list[Verdict]:
        return [verdict_of(candidate, speedup=self.speedups.pop(0)) for _, candidate in asked]

    def sessions(self, _: Problem, candidate: Candidate) -> tuple[float, ...]:
        self.measured.append(candidate.source)
        if error := self.fails(candidate):
            raise error
        return SESSIONS


@pytest.fixture
def prove(tmp_path: Path) -> Callable[..., ProvenFind | None]:
    def prove(again: Again, *, count: int = 3, better_than: float = 1.0) -> ProvenFind | None:
        candidates = [Candidate(problem_id=PROBLEM.id, source=f"x = {n}\n") for n in range(count)]
        gains = [Find(each, verdict_of(each, speedup=2.0), "fuser") for each in candidates]
        with Ledger.open(tmp_path) as ledger:
            ledger.begin("optimize", run="one")
            return proven(
                ledger,
                lambda: nullcontext(cast(VerdictSource, again)),
                again.sessions,
                PROBLEM,
                gains,
                again.said.append,
                better_than=better_than,
            )

    return prove


def test_a_proven_find_has_its_sessions_and_their_time_is_told(prove: Any) -> None:
    again = Again(1.5)
    found = prove(again)
    assert found is not None
    assert found.sessions == SESSIONS
    assert "10 sessions for cudal1 check, 1.500x to 1.590x, took 0 s" in again.said[-1]


def test_the_next_best_is_tried_where_a_second_measurement_proves_nothing(prove: Any) -> None:
    again = Again(1.0, 1.5)
    found = prove(again)
    assert found is not None
    assert "x = 1" in found.find.candidate.source
    assert prove(Again(*[1.0] * MOST_TRIED), count=MOST_TRIED + 1) is None


def test_no_sessions_are_measured_of_what_is_no_better_than_the_kept_version(prove: Any) -> None:
    again = Again(1.5)
    assert prove(again, better_than=1.5) is None
    assert again.measured == []


def test_a_version_that_is_correct_only_sometimes_is_left_out(prove: Any) -> None:
    again = Again(1.5, 1.4)

    def fails(candidate: Candidate) -> Exception | None:
        wrong = verdict_of(candidate, status=Status.INCORRECT)
        return IncorrectAgain(wrong) if "x = 0" in candidate.source else None

    again.fails = fails
    found = prove(again)
    assert found is not None
    assert "x = 1" in found.find.candidate.source
    assert any("left out: correct only sometimes: incorrect" in line for line in again.said)


def test_a_version_is_kept_without_sessions_where_none_can_be_measured(prove: Any) -> None:
    again = Again(1.5)
    again.fails = lambda _: SuiteError("its reference is too slow")
    found = prove(again)
    assert found is not None
    assert found.sessions == ()
    assert "cudal1 check --update measures them" in again.said[-1]
