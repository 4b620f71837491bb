"""Tests of the choice of failures: the newest of distinct programs, of one island where asked."""

from __future__ import annotations

from cudal1.selection.exemplar import Attempt
from cudal1.selection.failures import LESSONS, Failure, newest
from cudal1.verdict import Status


def failure(name: str, program: str, island: int | None = None) -> Failure:
    attempt = Attempt(candidate_id=name, source=name, score=0.0, feedback="It crashes.")
    return Failure(attempt=attempt, program_id=program, island=island)


def chosen(*failures: Failure, count: int = 2, island: int | None = None) -> list[str | None]:
    return [each.candidate_id for each in newest(failures, count=count, island=island)]


def test_the_newest_failures_are_chosen_and_stand_in_their_order() -> None:
    assert chosen(failure("a", "1"), failure("b", "2"), failure("c", "3")) == ["b", "c"]


def test_a_program_is_shown_once_by_its_newest_source() -> None:
    assert chosen(failure("a", "1"), failure("b", "2"), failure("c", "2")) == ["a", "c"]


def test_an_island_sees_its_own_failures_alone() -> None:
    given = failure("a", "1", 0), failure("b", "2", 1), failure("c", "3")
    assert chosen(*given, island=0) == ["a"]


def test_no_failures_are_shown_where_none_are_asked_for() -> None:
    assert chosen(failure("a", "1"), count=0) == []


def test_cheats_are_no_lessons() -> None:
    assert not {Status.CORRECT, Status.HACKED, Status.INVALID} & set(LESSONS)
