"""A policy's candidates are judged once each, beside the policy or only when it waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError, WorkerError
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.device.sharing import Sharing, keeping_to, sharing
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import judging_queue
from cudal1.harness.schedule.assignment import Refusal, judge, open_pool
from cudal1.harness.schedule.device_processes import DeviceProcess
from cudal1.harness.schedule.judging_queue import JudgingQueue
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.train.group.group import training_gpus
from cudal1.verdict import Status, Verdict
from tests.harness.schedule.test_fleet_losses import Played

NamedProblem = Callable[[str], Problem]
CORES = frozenset(os.sched_getaffinity(0))
RECORD = 1.25


class Particular(Played):
    """A process that refuses the problem of a given refusal, and no other."""

    def __init__(self, device: str, about: Refusal | None, *, num_answers: int) -> None:
        super().__init__(device, num_answers=num_answers)
        self._about = about
        self.is_open = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **more: Any) -> Future[Any]:
        """Answer as `Played` does, or with the refusal."""
        self.is_open |= fn is open_pool
        is_meant = self._about and fn is judge and args[0].problem.id == self._about.problem_id
        self.refusal = self._about if is_meant else None
        return super().submit(fn, *args, **more)


class Court:
    """A JudgingQueue with fake judges, and the candidates that it settles."""

    def __init__(self, opened: JudgingQueue, judges: list[Particular], settled: list[str]) -> None:
        self.judging_queue = opened
        self.judges = judges
        self.settled = settled

    @property
    def num_asked(self) -> int:
        return sum(len(judge.asked) for judge in self.judges)


@contextmanager
def opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    protocol: EvalProtocol,
    *,
    is_beside: bool,
    refusal: Refusal | None = None,
    num_answers: int = 1000,
) -> Iterator[Court]:
    devices = tuple(
        Device(device_class=DeviceClass.CPU, kind="cpu", id=name, worker_core=None) for name in "ab"
    )
    judges = [Particular(device.id, refusal, num_answers=num_answers) for device in devices]
    device_processes = [
        DeviceProcess(device, judge) for device, judge in zip(devices, judges, strict=True)
    ]

    @contextmanager
    def played(_: object) -> Iterator[list[DeviceProcess]]:
        yield device_processes

    def settle(problem: Problem, candidate: Candidate, judgement: Judgement) -> Verdict:
        assert candidate.id == judgement.verdict.candidate_id
        settled.append(candidate.id)
        return judgement.verdict

    settled: list[str] = []
    monkeypatch.setattr(judging_queue, "processes_here", played)
    shared = Sharing(devices, 1, is_beside, CORES, CORES)
    with JudgingQueue(
        shared, protocol, settle, record_of=lambda *_: RECORD, builds=tmp_path / "builds"
    ) as court:
        yield Court(court, judges, settled)


def candidates(problem: Problem, count: int) -> list[tuple[Problem, Candidate]]:
    return [
        (problem, Candidate(problem_id=problem.id, source=f"{problem.null_source}\n# {number}"))
        for number in range(count)
    ]


@pytest.mark.parametrize("is_beside", [True, False])
def test_each_candidate_has_a_verdict_and_equal_ones_share_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    is_beside: bool,
    named_problem: NamedProblem,
) -> None:
    work = candidates(named_problem("silu"), 5)
    with opened(tmp_path, monkeypatch, quick, is_beside=is_beside) as court:
        for pair in [*work, *work]:
            court.judging_queue.add(*pair)
        found = court.judging_queue.collect()
    assert set(found) == {candidate.id for _, candidate in work}
    assert {verdict.status for verdict in found.values()} == {Status.CORRECT}
    assert sorted(court.settled) == sorted(found)


def test_judges_in_turn_do_not_judge_until_the_policy_waits(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    first, second = candidates(named_problem("silu"), 2)
    with opened(tmp_path, monkeypatch, quick, is_beside=False) as court:
        for number, pair in enumerate((first, second), start=1):
            court.judging_queue.add(*pair)
            time.sleep(0.3)
            assert len(court.settled) == number - 1
            court.judging_queue.collect()
            assert len(court.settled) == number


def test_judges_beside_the_policy_do_not_wait_for_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    with opened(tmp_path, monkeypatch, quick, is_beside=True) as court:
        for pair in candidates(named_problem("silu"), 3):
            court.judging_queue.add(*pair)
        deadline = time.monotonic() + 300
        while len(court.settled) < 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert len(court.judging_queue.collect()) == 3


def test_judges_get_ready_before_there_is_anything_to_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick: EvalProtocol
) -> None:
    with opened(tmp_path, monkeypatch, quick, is_beside=False) as court:
        deadline = time.monotonic() + 300
        while not all(judge.is_open for judge in court.judges):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert court.num_asked == 0


def held(device: str) -> Future[Any]:
    """Return the answer of a judge on a device that another process holds."""
    future: Future[Any] = Future()
    future.set_exception(DeviceError(f"{device} is held"))
    return future


@pytest.mark.slow
def test_a_device_is_waited_for_as_long_as_no_work_needs_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    num_tries = []

    def submit(self: Particular, fn: Any, *args: Any, **more: Any) -> Future[Any]:
        if fn is open_pool and len(num_tries) < 4:  # two devices, two tries
            num_tries.append(self)
            return held(str(args[0].id))
        return Played.submit(self, fn, *args, **more)

    monkeypatch.setattr(Particular, "submit", submit)
    [pair] = candidates(named_problem("silu"), 1)
    with opened(tmp_path, monkeypatch, quick, is_beside=False) as court:
        deadline = time.monotonic() + 300
        while len(num_tries) < 4:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        court.judging_queue.add(*pair)
        assert len(court.judging_queue.collect()) == 1


def test_a_device_that_is_held_when_work_needs_it_is_an_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    monkeypatch.setattr(Particular, "submit", lambda *args, **_: held(args[0]._device))
    [pair] = candidates(named_problem("silu"), 1)
    with opened(tmp_path, monkeypatch, quick, is_beside=False) as court:
        court.judging_queue.add(*pair)
        with pytest.raises(DeviceError, match="a is held; b is held"):
            court.judging_queue.collect()


@pytest.mark.slow
def test_closing_does_not_wait_for_a_device_that_is_held(
    tmp_path: Path, quick: EvalProtocol
) -> None:
    device = find_device(DeviceClass.CPU)
    shared = Sharing((device,), 1, False, CORES, CORES)
    with (
        device.locked(),
        JudgingQueue(
            shared,
            quick,
            lambda *_: pytest.fail("nobody is judged"),
            record_of=lambda *_: None,
            builds=tmp_path / "builds",
            wait_s=600,
        ),
    ):
        time.sleep(3)  # the judge has started, and waits
        closing = time.monotonic()
    assert time.monotonic() - closing < 60


def test_some_candidates_are_only_checked(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    work = candidates(named_problem("silu"), 6)
    with opened(tmp_path, monkeypatch, quick, is_beside=False) as court:
        for number, pair in enumerate(work):
            court.judging_queue.add(*pair, timing=number % 2 == 0)
        assert len(court.judging_queue.collect()) == 6
    asked = {
        assignment.candidate.id: assignment.timing
        for judge in court.judges
        for assignment in judge.asked
    }
    assert asked == {candidate.id: n % 2 == 0 for n, (_, candidate) in enumerate(work)}


def test_a_lost_judge_is_logged_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    caplog: pytest.LogCaptureFixture,
    named_problem: NamedProblem,
) -> None:
    with opened(tmp_path, monkeypatch, quick, is_beside=False) as court:
        court.judges[1]._num_left = 0
        for pair in candidates(named_problem("silu"), 9):
            court.judging_queue.add(*pair)
            if len(court.judging_queue._asked) == 3:
                assert len(court.judging_queue.collect()) == 3
    told = [record.getMessage() for record in caplog.records if "died" in record.message]
    assert told == ["the judge on cpu b died; others take its candidates over"]


def test_a_claim_is_compared_with_the_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    with opened(tmp_path, monkeypatch, quick, is_beside=True) as court:
        court.judging_queue.add(*candidates(named_problem("silu"), 1)[0])
        court.judging_queue.collect()
    assert {assignment.record for judge in court.judges for assignment in judge.asked} == {RECORD}


def test_a_candidate_that_cannot_be_judged_is_an_error_that_says_why(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    problem = named_problem("silu")
    refusal = Refusal(problem.id, "", "too large for this device: lower its sizes")
    with opened(tmp_path, monkeypatch, quick, is_beside=False, refusal=refusal) as court:
        court.judging_queue.add(*candidates(problem, 1)[0])
        with pytest.raises(WorkerError, match="lower its sizes"):
            court.judging_queue.collect()


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_list_is_answered_as_it_is_judged_with_its_refusals(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    is_beside: bool,
    named_problem: NamedProblem,
) -> None:
    good, bad = named_problem("silu"), named_problem("softmax")
    work = [*candidates(good, 4), *candidates(bad, 2)]
    refusal = Refusal(bad.id, "", "too large")
    with opened(tmp_path, monkeypatch, quick, is_beside=is_beside, refusal=refusal) as court:
        heard = dict(court.judging_queue.judge_all([*work, *work]))
        assert not dict(court.judging_queue.judge_all([])), "nobody is heard of twice"
    assert set(heard) == {candidate.id for _, candidate in work}
    refused = {candidate.id for _, candidate in candidates(bad, 2)}
    assert {key for key, said in heard.items() if isinstance(said, Refusal)} == refused
    assert sorted(court.settled) == sorted(heard.keys() - refused)


@pytest.mark.parametrize("is_beside", [True, False])
def test_a_list_is_not_mixed_with_candidates_that_wait(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    is_beside: bool,
    named_problem: NamedProblem,
) -> None:
    first, second, third = candidates(named_problem("silu"), 3)
    with opened(tmp_path, monkeypatch, quick, is_beside=is_beside) as court:
        court.judging_queue.add(*first)
        court.judging_queue.add(*second)
        listed = dict(court.judging_queue.judge_all([second, third]))
        assert set(listed) == {second[1].id, third[1].id}
        court.judging_queue.add(*first)
        assert set(court.judging_queue.collect()) == {first[1].id}
        assert court.judging_queue.collect() == {}
        court.judging_queue.add(*first)
        list(court.judging_queue.judge_all([second]))
        assert set(dict(court.judging_queue.judge_all([first]))) == {first[1].id}
    assert len(court.settled) == 5, "nobody is judged for two who ask at a time"


def test_all_devices_get_a_list_at_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    """This holds for judges that are ready, too: none waits for the first answer of a list."""
    batches: list[int] = []
    judge_batch = JudgingQueue._judge

    def count(court: JudgingQueue, fleet: Any, batch: Any) -> None:
        batches.append(len(batch))
        judge_batch(court, fleet, batch)

    monkeypatch.setattr(JudgingQueue, "_judge", count)
    work = candidates(named_problem("silu"), 12)
    with opened(tmp_path, monkeypatch, quick, is_beside=True) as court:
        for some in (work[:6], work[6:]):
            assert len(list(court.judging_queue.judge_all(some))) == 6
    assert batches == [6, 6]


def test_judges_that_die_leave_no_caller_waiting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    with opened(tmp_path, monkeypatch, quick, is_beside=False, num_answers=0) as court:
        for pair in candidates(named_problem("silu"), 3):
            court.judging_queue.add(*pair)
        with pytest.raises(WorkerError):
            court.judging_queue.collect()


def test_candidates_that_were_not_collected_do_not_keep_the_queue_open(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    quick: EvalProtocol,
    named_problem: NamedProblem,
) -> None:
    with opened(tmp_path, monkeypatch, quick, is_beside=False) as court:
        court.judging_queue.add(*candidates(named_problem("silu"), 1)[0])
    assert court.settled == []


@pytest.mark.parametrize(
    ("num_cores", "is_beside"), [(1, False), (2, False), (3, False), (8, True)]
)
def test_a_cpu_is_shared_if_there_are_enough_cores(
    monkeypatch: pytest.MonkeyPatch, num_cores: int, is_beside: bool
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(num_cores)))
    found = sharing(DeviceClass.CPU, num_policies=1)
    assert found.is_beside is is_beside
    assert found.num_devices == 1 + is_beside
    if is_beside:
        (device,) = found.devices
        assert device.worker_core in found.judge_cores
        assert len(found.judge_cores) == 2
        assert not found.policy_cores & found.judge_cores


@pytest.mark.parametrize(
    ("num_gpus", "launched", "judges", "is_beside"),
    [(1, 1, [0], False), (2, 1, [0], True), (4, 2, [0, 1], True), (4, 4, [0, 1, 2, 3], False)],
)
def test_gpus_that_no_policy_uses_are_for_judges(
    monkeypatch: pytest.MonkeyPatch,
    num_gpus: int,
    launched: int,
    judges: list[int],
    is_beside: bool,
) -> None:
    gpus = [
        Device(device_class=DeviceClass.CUDA, kind="gpu", id=f"GPU-{n}", worker_core=None, index=n)
        for n in range(num_gpus)
    ]
    monkeypatch.setattr("cudal1.harness.device.sharing.find_devices", lambda _: gpus)
    found = sharing(DeviceClass.CUDA, num_policies=launched)
    assert [device.index for device in found.devices] == judges
    assert (found.is_beside, found.num_devices) == (is_beside, num_gpus)
    trained_on = set(training_gpus(launched, [str(n) for n in range(num_gpus)]))
    assert is_beside is trained_on.isdisjoint(map(str, judges))


def test_all_judges_have_devices_of_one_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [
        Device(device_class=DeviceClass.CUDA, kind=kind, id=f"GPU-{n}", worker_core=None, index=n)
        for n, kind in enumerate(("large", "small", "large", "large"))
    ]
    monkeypatch.setattr("cudal1.harness.device.sharing.find_devices", lambda _: gpus)
    found = sharing(DeviceClass.CUDA, num_policies=1)
    assert [device.index for device in found.devices] == [0, 2]


def test_several_processes_on_a_cpu_take_turns_with_the_judge(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(16)))
    assert not sharing(DeviceClass.CPU, num_policies=2).is_beside


def test_threads_keep_to_their_cores_and_return_to_all() -> None:
    import torch

    one, threads = frozenset([min(CORES)]), torch.get_num_threads()
    with keeping_to(one):
        assert os.sched_getaffinity(0) == one
        assert torch.get_num_threads() == 1
    assert os.sched_getaffinity(0) == CORES
    assert torch.get_num_threads() == threads


@pytest.mark.slow
def test_real_judges_alternate_with_a_caller_that_waits(
    tmp_path: Path, quick: EvalProtocol, named_problem: NamedProblem
) -> None:
    """Two rounds use the harness itself: the judge's process stays ready between them."""
    problem = named_problem("silu")
    twin = find_device(DeviceClass.CPU).model_copy(update={"id": "docket-test"})
    burst_times: list[float] = []

    def settle(_: Problem, __: Candidate, judgement: Judgement) -> Verdict:
        burst_times.append(judgement.prepare_s)
        assert 0 < judgement.build_s < judgement.verdict.judge_s
        return judgement.verdict

    shared = Sharing((twin,), 1, False, CORES, CORES)
    with JudgingQueue(
        shared, quick, settle, record_of=lambda *_: None, builds=tmp_path / "builds"
    ) as court:
        for pair in candidates(problem, 2):
            court.add(*pair)
            (verdict,) = court.collect().values()
            assert verdict.status is Status.CORRECT, verdict.reason
    assert burst_times[0] > 10 * burst_times[1], "the problem is prepared once"
