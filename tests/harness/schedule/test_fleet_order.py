"""Virtual time shows how often devices prepare problems and how long claims wait."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.candidate import Candidate
from cudal1.harness.device.device import Device
from cudal1.harness.exchange.failure import Failure
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import assignment, fleet, waiting_claims
from cudal1.harness.schedule.assignment import Assignment
from cudal1.harness.schedule.device_processes import DeviceProcess
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status, Verdict

NamedProblem = Callable[[str], Problem]
PREPARING_S, JUDGING_S = 0.9, 0.46
"""Seconds as on an H200 (docs/log/2026-11-25-issue4-h200.md). A confirmation takes as long as a
verdict."""
BUILDING_S = 10.0
"""Seconds of a build."""
COMPILES = "compiles"
"""A word in the source of each candidate that is built ahead."""
LARGE = "large"
"""A word in the source of each candidate that makes a large claim."""


class Clocked(Executor):
    """A device's process that answers in virtual time and may be lost at some moment."""

    def __init__(self, device: str, lost_s: float) -> None:
        self._device = device
        self.lost_s = lost_s
        self.asked = deque[tuple[Assignment, Future[Any]]]()
        self.ready_s = 0.0
        """Virtual time at which the first question is answered, in seconds."""
        self._at = ""
        self.num_prepared = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        answer: Future[Any] = Future()
        if fn is not assignment.judge:
            answer.set_result(None)
            return answer
        self.asked.append((args[0], answer))
        if len(self.asked) == 1:
            self.begin(World.now_s)
        return answer

    def begin(self, now_s: float) -> None:
        problem = self.asked[0][0].problem.id
        is_new, self._at = problem != self._at, problem
        self.num_prepared += is_new
        self.ready_s = now_s + JUDGING_S + is_new * PREPARING_S

    def answer(self, now_s: float) -> None:
        if now_s >= self.lost_s:
            for _, future in self.asked:
                future.set_exception(BrokenExecutor())
            self.asked.clear()
            return
        task, future = self.asked.popleft()
        future.set_result(_judgement(self._device, task))
        if self.asked:
            self.begin(now_s)


class ClockedBuilder:
    """A builder of one candidate at a time, in virtual time."""

    num_workers = 1

    def __init__(self) -> None:
        self.asked = deque[Future[Failure | None]]()
        self.ready_s = 0.0
        """Virtual time at which the first build ends, in seconds."""

    def make_room(self, *, wanted: bool) -> None:
        pass

    def takes(self, candidate: Candidate) -> bool:
        return COMPILES in candidate.source

    def begin(self, _: Problem, __: Candidate) -> Future[Failure | None]:
        future: Future[Failure | None] = Future()
        self.asked.append(future)
        if len(self.asked) == 1:
            self.ready_s = World.now_s + BUILDING_S
        return future

    def content(self, candidate: Candidate) -> bytes:
        return candidate.source.encode()

    def serves(self, _: str) -> bool:
        return True

    def answer(self, now_s: float) -> None:
        self.asked.popleft().set_result(None)
        self.ready_s = now_s + BUILDING_S


class World:
    """A clock of virtual time, which goes on while a caller waits."""

    now_s = 0.0

    def __init__(self, processes: Sequence[Clocked | ClockedBuilder]) -> None:
        World.now_s = 0.0
        self._processes = processes

    def wait(self, asked: Sequence[Future[Any]], **_: Any) -> Any:
        while not any(future.done() for future in asked):
            busy = [process for process in self._processes if process.asked]
            first = min(busy, key=lambda process: process.ready_s)
            World.now_s = first.ready_s
            first.answer(World.now_s)
        return SimpleNamespace(done={future for future in asked if future.done()})


def _judgement(device: str, task: Assignment) -> Judgement:
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
        }
    )
    is_large = LARGE in task.candidate.source
    said: dict[str, Any] = {"status": Status.CORRECT, "measurement": measurement}
    if not is_large:
        said = {"status": Status.INCORRECT, "reason": "wrong output"}
    verdict = Verdict(
        problem_id=task.problem.id,
        candidate_id=task.candidate.id,
        protocol_id="x",
        device_kind="cpu",
        device_id=device,
        judged_at="2026-01-01T00:00:00+00:00",
        judge_s=1.0,
        **said,
    )
    return Judgement(verdict, (), is_to_confirm=is_large and task.elsewhere and not task.first)


@dataclass
class Seen:
    """Figures of a queue that was judged."""

    wall_s: float = 0.0
    num_prepared: int = 0
    most_waiting: int = 0
    longest_wait_s: float = 0.0
    claimed_s: dict[str, float] = field(default_factory=dict)


@pytest.fixture
def judged(
    quick: EvalProtocol, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Seen]:
    """Return a function that lets devices judge runs of given sizes, one in three a large claim."""

    def run(num_devices: int, sizes: Sequence[int], *, lost_s: float = 1e9) -> Seen:
        silu = named_problem("silu")
        problems = [
            silu.model_copy(update={"number": 100 + i, "source": f"{silu.source}\n# {i}"})
            for i in range(len(sizes))
        ]
        assert len({problem.id for problem in problems}) == len(sizes)
        work = [
            (problem, Candidate(problem_id=problem.id, source=f"# {i} {'' if i % 3 else LARGE}"))
            for problem, size in zip(problems, sizes, strict=True)
            for i in range(size)
        ]
        lost = [lost_s, *[1e9] * (num_devices - 1)]
        processes = [Clocked(f"d{i}", lost[i]) for i in range(num_devices)]
        device_processes = [
            DeviceProcess(
                Device(device_class=DeviceClass.CPU, kind="cpu", id=f"d{i}", worker_core=None), p
            )
            for i, p in enumerate(processes)
        ]
        monkeypatch.setattr(fleet, "wait", World(processes).wait)
        seen, found = Seen(), list[str]()
        with fleet.Fleet(device_processes, quick) as opened:
            giving_back = opened._give_back

            def give_back(task: Assignment) -> None:
                giving_back(task)
                seen.claimed_s.setdefault(task.candidate.id, World.now_s)
                waiting = max(len(mine) for mine in opened._claims._claims.values())
                seen.most_waiting = max(seen.most_waiting, waiting)

            monkeypatch.setattr(opened, "_give_back", give_back)
            for each in opened.judge_all(work):
                assert isinstance(each, Judgement)
                found.append(each.verdict.candidate_id)
                if found[-1] in seen.claimed_s:
                    waited_s = World.now_s - seen.claimed_s[found[-1]]
                    seen.longest_wait_s = max(seen.longest_wait_s, waited_s)
        assert sorted(found) == sorted(candidate.id for _, candidate in work)
        seen.wall_s = World.now_s
        seen.num_prepared = sum(process.num_prepared for process in processes)
        return seen

    return run


def test_claims_cost_few_preparations(judged: Callable[..., Seen]) -> None:
    seen = judged(2, [40] * 6)
    ideal_s = (240 * 4 / 3 * JUDGING_S + 2 * 6 * PREPARING_S) / 2
    assert seen.num_prepared <= 2 * 6 + 2
    assert seen.wall_s < 1.08 * ideal_s


def test_claims_wait_only_in_numbers_that_are_worth_a_preparation(
    judged: Callable[..., Seen],
) -> None:
    seen = judged(2, [600] * 2)
    assert (
        waiting_claims.MANY_CLAIMS <= seen.most_waiting <= waiting_claims.MANY_CLAIMS + fleet.AHEAD
    )
    assert seen.num_prepared < 2 * 600 * 2 / 3 / waiting_claims.MANY_CLAIMS + 4


def test_a_device_that_left_its_problem_for_claims_does_not_return_at_once(
    judged: Callable[..., Seen],
) -> None:
    seen = judged(2, [400] + [16] * 25)
    assert seen.num_prepared < 90


def test_many_devices_share_few_problems_without_preparing_each_in_turn(
    judged: Callable[..., Seen],
) -> None:
    seen = judged(8, [300] * 2)
    assert seen.num_prepared < 30


def test_claims_come_first_among_the_last_runs(judged: Callable[..., Seen]) -> None:
    assert judged(2, [100, 20]).longest_wait_s < 20


@pytest.mark.parametrize(("num_devices", "sizes"), [(3, (30, 60, 90)), (8, (200, 40, 40))])
def test_no_device_is_left_alone_with_claims_at_the_end(
    judged: Callable[..., Seen], num_devices: int, sizes: Sequence[int]
) -> None:
    seen = judged(num_devices, sizes)
    judging_s = sum(size + -(-size // 3) for size in sizes) * JUDGING_S
    all_s = judging_s + num_devices * len(sizes) * PREPARING_S
    assert seen.wall_s < 1.1 * all_s / num_devices


def test_claims_do_not_wait_for_a_device_that_was_lost(judged: Callable[..., Seen]) -> None:
    usual, lost = judged(3, [30] * 30), judged(3, [30] * 30, lost_s=20.0)
    assert lost.longest_wait_s < 2.5 * usual.longest_wait_s


def test_builds_go_on_while_other_candidates_are_judged(
    quick: EvalProtocol, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    silu = named_problem("silu")
    num_built, each_of = 20, 8
    problems = [
        silu.model_copy(update={"number": 100 + i, "source": f"{silu.source}\n# {i}"})
        for i in range(num_built * each_of)
    ]
    work = [
        (problem, Candidate(problem_id=problem.id, source=f"# {'' if i % each_of else COMPILES}"))
        for i, problem in enumerate(problems)
    ]
    process = Clocked("d0", 1e9)
    builder: Any = ClockedBuilder()
    monkeypatch.setattr(fleet, "wait", World([process, builder]).wait)
    device = Device(device_class=DeviceClass.CPU, kind="cpu", id="d0", worker_core=None)
    with fleet.Fleet([DeviceProcess(device, process)], quick, builder=builder) as opened:
        assert len(list(opened.judge_all(work))) == len(work)
    judging_s = len(work) * (JUDGING_S + PREPARING_S)
    assert World.now_s < 1.1 * max(judging_s, num_built * BUILDING_S)
