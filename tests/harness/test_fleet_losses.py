"""What becomes of work when processes and machines are lost: with seats that only play."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import DeviceLostError, WorkerError
from cudal1.harness import Device, Judgement, errand, fleet
from cudal1.harness.progress import Failure
from cudal1.harness.seats import MachineLost, Seat
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status, Verdict

NamedProblem = Callable[[str], Problem]


LOSSES = {
    "died": BrokenExecutor(), "machine": MachineLost(),
    "device": DeviceLostError("device b computes no more"),
}  # fmt: skip


class Played(Executor):
    """A process that answers a few questions, and then is lost, in one of four ways."""

    def __init__(self, device: str, *, num_answers: int = 1000, lost: str = "died") -> None:
        self._device = device
        self._num_left = num_answers
        self._lost = lost
        self.asked: list[Any] = []
        self.refusal: errand.Refusal | None = None
        self.has_left = False
        self.refuses_claims = False
        """And nothing else."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        if fn is not errand.judge:
            self.has_left |= fn is errand.leave
            answer.set_result(None)
            return answer
        self._num_left -= 1
        self.asked += args
        if self.refusal is not None and (args[0].first or not self.refuses_claims):
            answer.set_result(replace(self.refusal, candidate_id=args[0].candidate.id))
        elif self._num_left >= 0:
            answer.set_result(
                _judgement(self._device, args[0].candidate, elsewhere=args[0].elsewhere)
            )
        elif self._lost == "unseen":
            raise BrokenExecutor
        else:
            answer.set_exception(LOSSES[self._lost])
        return answer


def _judgement(device: str, candidate: Candidate, *, elsewhere: bool) -> Judgement:
    """A large claim, which another device is to confirm, or this one has."""
    confirmed = {} if elsewhere else {"is_confirmed": True, "confirmed_on": device}
    measurement = Measurement.model_validate(
        {
            "baseline": "eager", "speedup": 5.0, "certified": 5.0, "alpha": 0.01, "num_quads": 9,
            "bucket_medians": (5.0,), "bucket_variance": 0.0, "is_stable": True,
            "reference_us": 500.0, "candidate_us": 100.0, **confirmed,
        }
    )  # fmt: skip
    verdict = Verdict(
        problem_id=candidate.problem_id, candidate_id=candidate.id, protocol_id="x",
        device_kind="cpu", device_id=device, status=Status.CORRECT, measurement=measurement,
        judged_at="2026-01-01T00:00:00+00:00", judge_s=1.0,
    )  # fmt: skip
    compiled = f"on {device}".encode() if elsewhere else b""
    return Judgement(verdict, (), is_to_confirm=elsewhere, compiled=compiled)


def _seat(name: str, machine: str = "", **played: Any) -> Seat:
    device = Device(device_class=DeviceClass.CPU, kind="cpu", id=name, worker_core=None)
    return Seat(device, Played(name, **played), machine)


def _played(seat: Seat) -> Played:
    assert isinstance(seat.process, Played)
    return seat.process


@pytest.fixture
def work(named_problem: NamedProblem) -> list[tuple[Problem, Candidate]]:
    problem = named_problem("silu")
    sources = [f"{problem.null_source}\n# {number}" for number in range(9)]
    return [(problem, Candidate(problem_id=problem.id, source=source)) for source in sources]


def _judged(
    seats: list[Seat], protocol: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> Iterator[str]:
    with fleet.Fleet(seats, protocol) as opened:
        for each in opened.judge_all(work):
            assert isinstance(each, Judgement)
            yield each.verdict.candidate_id


@pytest.mark.parametrize("lost", [*LOSSES, "unseen"])
@pytest.mark.parametrize("num_answers", range(8))
def test_each_candidate_has_one_verdict_whenever_a_device_is_lost(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], lost: str, num_answers: int
) -> None:
    seats = [_seat("a"), _seat("b", "m", num_answers=num_answers, lost=lost)]
    for order in (seats, seats[::-1]):
        found = list(_judged(order, quick, work))
        assert sorted(found) == sorted(candidate.id for _, candidate in work)
        seats[1] = _seat("b", "m", num_answers=num_answers, lost=lost)


@pytest.mark.parametrize("num_answers", range(4))
def test_a_machine_takes_all_its_seats_along_and_blames_no_candidate(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], num_answers: int
) -> None:
    gone = [_seat(name, "m", num_answers=num_answers, lost="machine") for name in "abc"]
    found = list(_judged([*gone, _seat("y", "other")], quick, work))
    assert sorted(found) == sorted(candidate.id for _, candidate in work)


def test_a_candidate_that_ends_two_judges_is_refused_and_costs_no_other(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    seats = [*(_seat(name, num_answers=0) for name in "ab"), _seat("c")]
    with fleet.Fleet(seats, quick) as opened:
        found = list(opened.judge_all(work))
    refused = [each for each in found if isinstance(each, errand.Refusal)]
    assert ["2 judges died with it" in each.reason for each in refused] == [True] * len(refused)
    assert len(refused) <= 1
    assert len(found) == len(work)


def test_why_a_device_was_lost_is_told_and_its_process_has_to_leave(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    seats = [_seat("a"), _seat("b", num_answers=1, lost="device")]
    with fleet.Fleet(seats, quick) as opened:
        list(opened.judge_all(work))
        assert opened.why_lost(seats[1]) == "device b computes no more"
    assert [_played(seat).has_left for seat in seats] == [False, True]
    alone = _seat("b", num_answers=2, lost="device")
    with pytest.raises(WorkerError, match=r"device b computes no more.*start again"):
        list(_judged([alone], quick, work))


def test_a_device_that_is_gone_before_anything_was_asked_keeps_nobody(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = _seat("gone")

    def broken(*_: Any) -> Future[Any]:
        raise BrokenExecutor

    monkeypatch.setattr(gone.process, "submit", broken)
    assert len(list(_judged([gone, _seat("a")], quick, work))) == len(work)
    with pytest.raises(WorkerError, match="start again"):
        list(_judged([gone], quick, work))


# --- claims of one device that another is to confirm ----------------------------------------------


def test_a_large_claim_is_measured_once_by_each_of_two_devices(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    seats = [_seat("a"), _seat("b")]
    with fleet.Fleet(seats, quick) as opened:
        found = [each.verdict for each in opened.judge_all(work) if isinstance(each, Judgement)]
    for seat in seats:
        for task in _played(seat).asked:
            assert task.elsewhere
            assert task.first is None or task.first.verdict.device_id != seat.device.id
    assert sum(len(_played(seat).asked) for seat in seats) == 2 * len(work)
    for verdict in found:
        assert verdict.measurement is not None
        assert verdict.measurement.confirmed_on not in (None, verdict.device_id)


@pytest.mark.parametrize(("machine", "built"), [("", b"on a"), ("another", b"")])
def test_who_confirms_has_what_was_compiled_on_its_machine(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], machine: str, built: bytes
) -> None:
    seats = [_seat("a"), _seat("b", machine)]
    with fleet.Fleet(seats, quick) as opened:
        (found,) = opened.judge_all(work[:1])
    assert isinstance(found, Judgement)
    assert found.compiled == b""
    (asked,) = _played(seats[1]).asked
    assert asked.built == built


def test_what_waiting_claims_compiled_is_kept_within_bounds(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "MAX_COMPILED_BYTES", 2 * len(b"on a"))
    seats = [_seat("a"), _seat("b")]
    with fleet.Fleet(seats, quick) as opened:
        found = [each for each in opened.judge_all(work) if isinstance(each, Judgement)]
    assert len(found) == len(work)
    claims = [task for seat in seats for task in _played(seat).asked if task.first]
    assert {bool(task.built) for task in claims} == {True, False}
    assert not any(task.first.compiled for task in claims)


def test_a_device_alone_confirms_its_claims(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    seat = _seat("a")
    list(_judged([seat], quick, work))
    assert not any(task.elsewhere for task in _played(seat).asked)


def test_a_device_left_alone_confirms_what_another_was_to(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    seats = [_seat("a"), _seat("b", num_answers=1, lost="machine", machine="m")]
    with fleet.Fleet(seats, quick) as opened:
        found = [each.verdict for each in opened.judge_all(work) if isinstance(each, Judgement)]
    assert sorted(each.candidate_id for each in found) == sorted(c.id for _, c in work)
    for verdict in found:
        assert verdict.measurement is not None
        assert verdict.measurement.is_confirmed
    assert "a" in {each.measurement.confirmed_on for each in found if each.measurement}


@pytest.mark.parametrize("refusing", ["b", "ab"])
def test_a_claim_is_passed_on_until_no_device_is_left_to_confirm_it(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], refusing: str
) -> None:
    seats = [_seat("a"), _seat("b")]
    for seat in seats:
        if seat.device.id in refusing:
            _played(seat).refusal = errand.Refusal(work[0][0].id, "", "too large")
            _played(seat).refuses_claims = True
    with fleet.Fleet(seats, quick) as opened:
        (found,) = opened.judge_all(work[:1])
    if refusing == "ab":
        assert isinstance(found, errand.Refusal)
    else:
        assert isinstance(found, Judgement)
        assert found.verdict.measurement is not None
        assert found.verdict.measurement.is_confirmed
        assert found.verdict.measurement.confirmed_on == "a"


def test_claims_on_a_problem_go_to_one_device(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    seats = [_seat(name) for name in "abcd"]
    list(_judged(seats, quick, work[:2]))
    confirming = {s.device.id for s in seats for task in _played(s).asked if task.first}
    assert len(confirming) == 1


def test_claims_wait_until_a_device_is_done_with_its_problem(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], named_problem: NamedProblem
) -> None:
    other = named_problem("softmax")
    others = [
        (other, Candidate(problem_id=other.id, source=f"{other.null_source}\n# {number}"))
        for number in range(4)
    ]
    seats = [_seat("a"), _seat("b")]
    list(_judged(seats, quick, [*work[:4], *others]))
    for seat in seats:
        problems = [task.problem.id for task in _played(seat).asked]
        assert len(problems) == 8
        assert len(set(problems[:4])) == len(set(problems[4:])) == 1


def test_devices_prepare_few_problems_for_claims_of_others(
    quick: EvalProtocol, named_problem: NamedProblem
) -> None:
    names = ("silu", "softmax", "linear", "heavy", "transpose", "row_sums")
    work = [
        (problem, Candidate(problem_id=problem.id, source=f"{problem.null_source}\n# {number}"))
        for problem in map(named_problem, names)
        for number in range(20)
    ]
    seats = [_seat("a"), _seat("b")]
    assert len(list(_judged(seats, quick, work))) == len(work)
    asked = [[task.problem.id for task in _played(seat).asked] for seat in seats]
    prepared = [sum(x != y for x, y in pairwise(["", *problems])) for problems in asked]
    assert sum(map(len, asked)) == 2 * len(work)
    assert sum(prepared) <= 2 * len(names) + 1  # a last one is shared


# --- what is built meanwhile ---------------------------------------------------------------------


def _built(future: Future[Failure | None]) -> None:
    if future.set_running_or_notify_cancel():
        future.set_result(None)


class PlayedBuilder:
    """Builds every other candidate, when it is told to."""

    def __init__(self, *, refuses: str = "") -> None:
        self.futures: list[Future[Failure | None]] = []
        self._refuses = refuses
        self.first_made_room: bool | None = None
        self.passed_over: list[str] = []

    def takes(self, candidate: Candidate) -> bool:
        return candidate.source.endswith(("1", "3", "5", "7"))

    num_workers = 1
    makes_room = False

    def make_room(self, *, wanted: bool) -> None:
        self.makes_room = wanted

    def begin(self, problem: Problem, candidate: Candidate) -> Future[Failure | None]:
        future: Future[Failure | None] = Future()
        if self.first_made_room is None:
            self.first_made_room = self.makes_room
        if self._refuses and candidate.source.endswith(self._refuses):
            future.set_result(Failure(Status.NO_BUILD, "no such thing"))
        else:
            threading.Timer(0.05 * len(self.futures), _built, [future]).start()
        self.futures.append(future)
        return future

    def pass_over(self, candidate: Candidate) -> None:
        self.passed_over.append(candidate.id)

    def content(self, candidate: Candidate) -> bytes:
        return candidate.id.encode() if self.takes(candidate) else b""

    def serves(self, machine: str) -> bool:
        return machine != "elsewhere"


@pytest.mark.parametrize("num_answers", [1, 3, 1000])
def test_what_is_built_meanwhile_is_judged_with_what_was_compiled(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], num_answers: int
) -> None:
    builder: Any = PlayedBuilder(refuses="3")
    seats = [_seat("a"), _seat("b", num_answers=num_answers)]
    with fleet.Fleet(seats, quick, builder=builder) as opened:
        found = [each for each in opened.judge_all(work) if isinstance(each, Judgement)]
        asked = [task for seat in seats for task in _played(seat).asked if task.first is None]
    assert sorted(each.verdict.candidate_id for each in found) == sorted(c.id for _, c in work)
    by_source = {task.candidate.source[-1]: task for task in asked}
    assert by_source["1"].built == work[1][1].id.encode()
    assert (by_source["2"].built, by_source["2"].not_built) == (b"", None)
    assert by_source["3"].not_built.status is Status.NO_BUILD
    assert not builder.makes_room


def test_what_is_built_says_nothing_where_there_is_another_compiler(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    builder: Any = PlayedBuilder(refuses="3")
    seat = _seat("a", "elsewhere")
    with fleet.Fleet([seat], quick, builder=builder) as opened:
        list(opened.judge_all(work))
    asked = _played(seat).asked
    assert len({task.candidate.id for task in asked}) == len(work)
    assert {(task.built, task.not_built) for task in asked if task.first is None} == {(b"", None)}


def test_a_builder_knows_whether_somebody_measures(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder: Any = PlayedBuilder()
    seat, seen = _seat("a"), []
    waiting = fleet.wait

    def looking(asked: Any, **how: Any) -> Any:
        seen.append((seat_is_asked(asked), builder.makes_room))
        return waiting(asked, **how)

    def seat_is_asked(asked: list[Future[Any]]) -> bool:
        return any(future not in builder.futures for future in asked)

    monkeypatch.setattr(fleet, "wait", looking)
    with fleet.Fleet([seat], quick, builder=builder) as opened:
        list(opened.judge_all(work))
    assert {is_asked for is_asked, _ in seen} == {True, False}
    while_asked = {makes_room for is_asked, makes_room in seen if is_asked}
    assert while_asked == {True, False}  # at the end the rest waits for builds
    assert not any(makes_room for is_asked, makes_room in seen if not is_asked)
    assert builder.first_made_room


def test_who_stops_listening_leaves_the_builder_all_its_workers(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    builder: Any = PlayedBuilder()
    with fleet.Fleet([_seat("a")], quick, builder=builder) as opened:
        judging = opened.judge_all(work)
        next(judging)
        assert builder.makes_room
        assert isinstance(judging, Generator)
        judging.close()
        assert not builder.makes_room


def test_devices_that_are_all_lost_are_said_though_something_is_being_built(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    builder: Any = PlayedBuilder()
    seat = _seat("a", num_answers=0, lost="machine")
    with (
        fleet.Fleet([seat], quick, builder=builder) as opened,
        pytest.raises(WorkerError, match="start again"),
    ):
        list(opened.judge_all(work))


def test_a_problem_that_cannot_be_judged_is_built_no_more(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    builder: Any = PlayedBuilder()
    seat = _seat("a")
    refusal = errand.Refusal(work[0][0].id, work[0][1].id, "too large")
    _played(seat).refusal = refusal
    with fleet.Fleet([seat], quick, builder=builder) as opened:
        found = list(opened.judge_all(work))
    assert {each.reason for each in found if isinstance(each, errand.Refusal)} == {"too large"}
    assert len(found) == len(work)
    assert builder.passed_over
