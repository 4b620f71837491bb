"""Work survives the loss of processes and machines; fake processes stand for devices."""

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
from cudal1.harness.device.device import Device
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import assignment, fleet, waiting_claims
from cudal1.harness.schedule.device_processes import DeviceProcess, MachineLost
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status, Verdict

NamedProblem = Callable[[str], Problem]


LOSSES = {
    "died": BrokenExecutor(),
    "machine": MachineLost(),
    "device": DeviceLostError("device b computes no more"),
}


class Played(Executor):
    """A process that answers a few questions and then is lost, in one of four ways."""

    def __init__(self, device: str, *, num_answers: int = 1000, lost: str = "died") -> None:
        self._device = device
        self._num_left = num_answers
        self._lost = lost
        self.asked: list[Any] = []
        self.refusal: assignment.Refusal | None = None
        self.has_left = False
        self.refuses_claims = False
        """True if it refuses claims alone."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        if fn is not assignment.judge:
            self.has_left |= fn is assignment.leave
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
    """Return a large claim, which another device is to confirm or this device has confirmed."""
    confirmed = {} if elsewhere else {"is_confirmed": True, "confirmed_on": device}
    measurement = Measurement.model_validate(
        {
            "baseline": "eager",
            "speedup": 5.0,
            "certified": 5.0,
            "alpha": 0.01,
            "num_quads": 9,
            "bucket_medians": (5.0,),
            "bucket_variance": 0.0,
            "is_stable": True,
            "reference_us": 500.0,
            "candidate_us": 100.0,
            **confirmed,
        }
    )
    verdict = Verdict(
        problem_id=candidate.problem_id,
        candidate_id=candidate.id,
        protocol_id="x",
        device_kind="cpu",
        device_id=device,
        status=Status.CORRECT,
        measurement=measurement,
        judged_at="2026-01-01T00:00:00+00:00",
        judge_s=1.0,
    )
    compiled = f"on {device}".encode() if elsewhere else b""
    return Judgement(verdict, (), is_to_confirm=elsewhere, compiled=compiled)


def _device_process(name: str, machine: str = "", **played: Any) -> DeviceProcess:
    device = Device(device_class=DeviceClass.CPU, kind="cpu", id=name, worker_core=None)
    return DeviceProcess(device, Played(name, **played), machine)


def _played(device_process: DeviceProcess) -> Played:
    assert isinstance(device_process.process, Played)
    return device_process.process


@pytest.fixture
def work(named_problem: NamedProblem) -> list[tuple[Problem, Candidate]]:
    problem = named_problem("silu")
    sources = [f"{problem.null_source}\n# {number}" for number in range(9)]
    return [(problem, Candidate(problem_id=problem.id, source=source)) for source in sources]


def _judged(
    device_processes: list[DeviceProcess],
    protocol: EvalProtocol,
    work: list[tuple[Problem, Candidate]],
) -> Iterator[str]:
    with fleet.Fleet(device_processes, protocol) as opened:
        for each in opened.judge_all(work):
            assert isinstance(each, Judgement)
            yield each.verdict.candidate_id


@pytest.mark.parametrize("lost", [*LOSSES, "unseen"])
@pytest.mark.parametrize("num_answers", range(8))
def test_each_candidate_has_one_verdict_whenever_a_device_is_lost(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], lost: str, num_answers: int
) -> None:
    device_processes = [
        _device_process("a"),
        _device_process("b", "m", num_answers=num_answers, lost=lost),
    ]
    for order in (device_processes, device_processes[::-1]):
        found = list(_judged(order, quick, work))
        assert sorted(found) == sorted(candidate.id for _, candidate in work)
        device_processes[1] = _device_process("b", "m", num_answers=num_answers, lost=lost)


@pytest.mark.parametrize("num_answers", range(4))
def test_a_lost_machine_takes_all_its_processes_along_and_blames_no_candidate(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], num_answers: int
) -> None:
    gone = [_device_process(name, "m", num_answers=num_answers, lost="machine") for name in "abc"]
    found = list(_judged([*gone, _device_process("y", "other")], quick, work))
    assert sorted(found) == sorted(candidate.id for _, candidate in work)


def test_a_candidate_that_ends_two_judges_is_refused_and_costs_no_other(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    device_processes = [
        *(_device_process(name, num_answers=0) for name in "ab"),
        _device_process("c"),
    ]
    with fleet.Fleet(device_processes, quick) as opened:
        found = list(opened.judge_all(work))
    refused = [each for each in found if isinstance(each, assignment.Refusal)]
    assert ["2 judges died with it" in each.reason for each in refused] == [True] * len(refused)
    assert len(refused) <= 1
    assert len(found) == len(work)


def test_the_reason_of_a_lost_device_is_told_and_its_process_has_to_leave(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    device_processes = [_device_process("a"), _device_process("b", num_answers=1, lost="device")]
    with fleet.Fleet(device_processes, quick) as opened:
        list(opened.judge_all(work))
        assert opened.why_lost(device_processes[1]) == "device b computes no more"
    assert [_played(device_process).has_left for device_process in device_processes] == [
        False,
        True,
    ]
    alone = _device_process("b", num_answers=2, lost="device")
    with pytest.raises(WorkerError, match=r"device b computes no more.*start again"):
        list(_judged([alone], quick, work))


def test_a_device_that_is_lost_before_any_question_holds_up_no_work(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = _device_process("gone")

    def broken(*_: Any) -> Future[Any]:
        raise BrokenExecutor

    monkeypatch.setattr(gone.process, "submit", broken)
    assert len(list(_judged([gone, _device_process("a")], quick, work))) == len(work)
    with pytest.raises(WorkerError, match="start again"):
        list(_judged([gone], quick, work))


# --- claims of one device that another is to confirm ----------------------------------------------


def test_a_large_claim_is_measured_once_by_each_of_two_devices(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    device_processes = [_device_process("a"), _device_process("b")]
    with fleet.Fleet(device_processes, quick) as opened:
        found = [each.verdict for each in opened.judge_all(work) if isinstance(each, Judgement)]
    for device_process in device_processes:
        for task in _played(device_process).asked:
            assert task.elsewhere
            assert task.first is None or task.first.verdict.device_id != device_process.device.id
    assert sum(
        len(_played(device_process).asked) for device_process in device_processes
    ) == 2 * len(work)
    for verdict in found:
        assert verdict.measurement is not None
        assert verdict.measurement.confirmed_on not in (None, verdict.device_id)


@pytest.mark.parametrize(("machine", "built"), [("", b"on a"), ("another", b"")])
def test_a_confirming_device_gets_builds_of_its_own_machine_alone(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], machine: str, built: bytes
) -> None:
    device_processes = [_device_process("a"), _device_process("b", machine)]
    with fleet.Fleet(device_processes, quick) as opened:
        (found,) = opened.judge_all(work[:1])
    assert isinstance(found, Judgement)
    assert found.compiled == b""
    (asked,) = _played(device_processes[1]).asked
    assert asked.built == built


def test_builds_of_waiting_claims_are_kept_within_bounds(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_claims, "MAX_COMPILED_BYTES", 2 * len(b"on a"))
    device_processes = [_device_process("a"), _device_process("b")]
    with fleet.Fleet(device_processes, quick) as opened:
        found = [each for each in opened.judge_all(work) if isinstance(each, Judgement)]
    assert len(found) == len(work)
    claims = [
        task
        for device_process in device_processes
        for task in _played(device_process).asked
        if task.first
    ]
    assert {bool(task.built) for task in claims} == {True, False}
    assert not any(task.first.compiled for task in claims)


def test_a_single_device_confirms_its_own_claims(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    device_process = _device_process("a")
    list(_judged([device_process], quick, work))
    assert not any(task.elsewhere for task in _played(device_process).asked)


def test_a_device_left_alone_confirms_the_claims_of_a_lost_one(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    device_processes = [
        _device_process("a"),
        _device_process("b", num_answers=1, lost="machine", machine="m"),
    ]
    with fleet.Fleet(device_processes, quick) as opened:
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
    device_processes = [_device_process("a"), _device_process("b")]
    for device_process in device_processes:
        if device_process.device.id in refusing:
            _played(device_process).refusal = assignment.Refusal(work[0][0].id, "", "too large")
            _played(device_process).refuses_claims = True
    with fleet.Fleet(device_processes, quick) as opened:
        (found,) = opened.judge_all(work[:1])
    if refusing == "ab":
        assert isinstance(found, assignment.Refusal)
    else:
        assert isinstance(found, Judgement)
        assert found.verdict.measurement is not None
        assert found.verdict.measurement.is_confirmed
        assert found.verdict.measurement.confirmed_on == "a"


def test_claims_on_a_problem_go_to_one_device(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    device_processes = [_device_process(name) for name in "abcd"]
    list(_judged(device_processes, quick, work[:2]))
    confirming = {s.device.id for s in device_processes for task in _played(s).asked if task.first}
    assert len(confirming) == 1


def test_claims_wait_until_a_device_is_done_with_its_problem(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], named_problem: NamedProblem
) -> None:
    other = named_problem("softmax")
    others = [
        (other, Candidate(problem_id=other.id, source=f"{other.null_source}\n# {number}"))
        for number in range(4)
    ]
    device_processes = [_device_process("a"), _device_process("b")]
    list(_judged(device_processes, quick, [*work[:4], *others]))
    for device_process in device_processes:
        problems = [task.problem.id for task in _played(device_process).asked]
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
    device_processes = [_device_process("a"), _device_process("b")]
    assert len(list(_judged(device_processes, quick, work))) == len(work)
    asked = [
        [task.problem.id for task in _played(device_process).asked]
        for device_process in device_processes
    ]
    prepared = [sum(x != y for x, y in pairwise(["", *problems])) for problems in asked]
    assert sum(map(len, asked)) == 2 * len(work)
    assert sum(prepared) <= 2 * len(names) + 1  # both devices prepare the last problem


# --- candidates that are built meanwhile ----------------------------------------------------------


def _built(future: Future[Failure | None]) -> None:
    if future.set_running_or_notify_cancel():
        future.set_result(None)


class PlayedBuilder:
    """A builder that builds every other candidate, after a delay."""

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
def test_a_candidate_built_meanwhile_is_judged_with_its_build(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], num_answers: int
) -> None:
    builder: Any = PlayedBuilder(refuses="3")
    device_processes = [_device_process("a"), _device_process("b", num_answers=num_answers)]
    with fleet.Fleet(device_processes, quick, builder=builder) as opened:
        found = [each for each in opened.judge_all(work) if isinstance(each, Judgement)]
        asked = [
            task
            for device_process in device_processes
            for task in _played(device_process).asked
            if task.first is None
        ]
    assert sorted(each.verdict.candidate_id for each in found) == sorted(c.id for _, c in work)
    by_source = {task.candidate.source[-1]: task for task in asked}
    assert by_source["1"].built == work[1][1].id.encode()
    assert (by_source["2"].built, by_source["2"].not_built) == (b"", None)
    assert by_source["3"].not_built.status is Status.NO_BUILD
    assert not builder.makes_room


def test_a_build_is_not_used_on_a_machine_with_another_compiler(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    builder: Any = PlayedBuilder(refuses="3")
    device_process = _device_process("a", "elsewhere")
    with fleet.Fleet([device_process], quick, builder=builder) as opened:
        list(opened.judge_all(work))
    asked = _played(device_process).asked
    assert len({task.candidate.id for task in asked}) == len(work)
    assert {(task.built, task.not_built) for task in asked if task.first is None} == {(b"", None)}


def test_a_builder_knows_if_a_device_measures(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]], monkeypatch: pytest.MonkeyPatch
) -> None:
    builder: Any = PlayedBuilder()
    device_process, seen = _device_process("a"), []
    waiting = fleet.wait

    def looking(asked: Any, **how: Any) -> Any:
        seen.append((is_judge_asked(asked), builder.makes_room))
        return waiting(asked, **how)

    def is_judge_asked(asked: list[Future[Any]]) -> bool:
        return any(future not in builder.futures for future in asked)

    monkeypatch.setattr(fleet, "wait", looking)
    with fleet.Fleet([device_process], quick, builder=builder) as opened:
        list(opened.judge_all(work))
    assert {is_asked for is_asked, _ in seen} == {True, False}
    while_asked = {makes_room for is_asked, makes_room in seen if is_asked}
    assert while_asked == {True, False}  # at the end the rest waits for builds
    assert not any(makes_room for is_asked, makes_room in seen if not is_asked)
    assert builder.first_made_room


def test_closing_the_iterator_gives_the_builder_all_its_workers(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    builder: Any = PlayedBuilder()
    with fleet.Fleet([_device_process("a")], quick, builder=builder) as opened:
        judging = opened.judge_all(work)
        next(judging)
        assert builder.makes_room
        assert isinstance(judging, Generator)
        judging.close()
        assert not builder.makes_room


def test_the_loss_of_all_devices_is_an_error_even_during_builds(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    builder: Any = PlayedBuilder()
    device_process = _device_process("a", num_answers=0, lost="machine")
    with (
        fleet.Fleet([device_process], quick, builder=builder) as opened,
        pytest.raises(WorkerError, match="start again"),
    ):
        list(opened.judge_all(work))


def test_builds_of_a_problem_that_cannot_be_judged_are_passed_over(
    quick: EvalProtocol, work: list[tuple[Problem, Candidate]]
) -> None:
    builder: Any = PlayedBuilder()
    device_process = _device_process("a")
    refusal = assignment.Refusal(work[0][0].id, work[0][1].id, "too large")
    _played(device_process).refusal = refusal
    with fleet.Fleet([device_process], quick, builder=builder) as opened:
        found = list(opened.judge_all(work))
    assert {each.reason for each in found if isinstance(each, assignment.Refusal)} == {"too large"}
    assert len(found) == len(work)
    assert builder.passed_over
