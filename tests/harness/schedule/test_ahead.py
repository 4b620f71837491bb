"""Only candidates that will soon be judged are built ahead, and no candidate is forgotten."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from cudal1.candidate import Candidate
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.schedule.ahead import WINDOW, Ahead
from cudal1.problem import Problem
from cudal1.verdict import Status


class Played:
    """A builder that builds when it is told to."""

    num_workers = 1

    def __init__(self) -> None:
        self.begun: list[Candidate] = []
        self.passed_over: list[Candidate] = []

    def takes(self, candidate: Candidate) -> bool:
        return candidate.source.startswith("c")

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        self.begun.append(candidate)
        return Future()

    def pass_over(self, candidate: Candidate) -> None:
        self.passed_over.append(candidate)

    def content(self, candidate: Candidate) -> bytes:
        return candidate.source.encode()

    def serves(self, machine: str) -> bool:
        return not machine


def _pair_of(item: Candidate) -> Any:
    return None, item


def _ahead(*sources: str) -> tuple[Ahead[Candidate], Played, list[str]]:
    builder: Any = Played()
    ahead = Ahead[Candidate](builder, _pair_of)
    candidates = [Candidate(problem_id=source[-1], source=source) for source in sources]
    return ahead, builder, [item.source for item in ahead.divert(candidates)]


def test_a_candidate_that_compiles_nothing_does_not_wait() -> None:
    ahead, builder, rest = _ahead("a1", "c1", "a2", "c2")
    assert rest == ["a1", "a2"]
    assert [each.source for each in builder.begun] == ["c1", "c2"]
    assert [item.source for item in ahead.building.values()] == ["c1", "c2"]


def test_no_candidate_waits_without_a_builder() -> None:
    items = [Candidate(problem_id="1", source="c")]
    assert list(Ahead[Candidate](None, _pair_of).divert(items)) == items


def test_no_more_candidates_are_built_than_are_judged() -> None:
    ahead, builder, _ = _ahead(*(f"c{number}" for number in range(100)))
    most = WINDOW + 2
    assert len(builder.begun) == most
    for future in list(ahead.building):
        future.set_result(None)
    built = ahead.finished(list(ahead.building))
    assert len(built) == most
    assert len(builder.begun) == most  # they are not judged yet
    assert ahead.content(built[0][0], "") == b"c0"
    assert ahead.content(built[0][0], "elsewhere") == b""
    assert len(builder.begun) == most + 1
    ahead.forget(built[1][0])
    assert len(builder.begun) == most + 2


def test_a_failed_build_is_told_and_an_error_of_our_own_is_not() -> None:
    ahead, _, _ = _ahead("c1", "c2", "c3")
    first, second, third = ahead.building
    failure = Failure(Status.NO_BUILD, "no such thing")
    second.set_result(failure)
    third.set_exception(ValueError())
    told = [(item.source, why) for item, why in ahead.finished({second, third})]
    assert told == [("c2", failure), ("c3", None)]
    assert list(ahead.building) == [first]


def test_a_dropped_candidate_makes_room() -> None:
    ahead, builder, _ = _ahead(*(f"c{number}" for number in range(40)))
    building = [item for item in ahead.building.values() if item.problem_id == "1"]
    dropped = ahead.drop(lambda item: item.problem_id == "1")
    assert [item.source for item in dropped] == ["c1", "c11", "c21", "c31"]
    assert builder.passed_over == building
    assert len(ahead.building) == WINDOW + 2
    assert not any(item.problem_id == "1" for item in ahead.building.values())
    assert len(ahead.drop(lambda _: True)) == 36
    assert not ahead.building
    assert builder.begun
