"""Several devices judge at the same time and confirm each other's large claims."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError, DeviceLostError, WorkerError
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import pool
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.device_processes import DeviceProcess, processes_here
from cudal1.harness.schedule.fleet import Fleet
from cudal1.harness.schedule.isolated import Isolated
from cudal1.harness.timing.claims import confirmed
from cudal1.measurement import Measurement
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status, Verdict
from tests.harness.inside import until

pytestmark = pytest.mark.slow

NamedProblem = Callable[[str], Problem]


@pytest.fixture(scope="module")
def fleet(quick: EvalProtocol, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A fleet of two devices that are one CPU: good enough for everything except figures.

    A judge that a test kills is started again.
    """
    cpu = find_device(DeviceClass.CPU)
    twins = [cpu.model_copy(update={"id": f"{cpu.id}-{number}"}) for number in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("fleet")))
        patch.setattr(tempfile, "tempdir", None)
        with processes_here(twins) as device_processes, Fleet(device_processes, quick) as opened:
            yield opened


def _candidates(problem: Problem, count: int) -> list[tuple[Problem, Candidate]]:
    return [
        (problem, Candidate(problem_id=problem.id, source=f"{problem.null_source}\n# {number}"))
        for number in range(count)
    ]


def test_every_candidate_is_judged_once_and_both_devices_are_used(
    fleet: Fleet, named_problem: NamedProblem
) -> None:
    work = _candidates(named_problem("silu"), 6)
    found = list(fleet.judge_all(work, timing=False))
    assert sorted(j.verdict.candidate_id for j in found) == sorted(c.id for _, c in work)
    assert {j.verdict.status for j in found} == {Status.CORRECT}
    assert len({j.verdict.device_id for j in found}) == 2


def test_a_candidate_that_crashes_takes_no_device_along(
    fleet: Fleet, named_problem: NamedProblem
) -> None:
    problem = named_problem("silu")
    bad = Candidate(problem_id=problem.id, source="import os; os._exit(1)")
    work = [(problem, bad), *_candidates(problem, 2)]
    statuses = sorted(j.verdict.status for j in fleet.judge_all(work, timing=False))
    assert statuses == [Status.CORRECT, Status.CORRECT, Status.NO_BUILD]


def test_a_device_that_is_in_use_is_refused_with_one_line(
    fleet: Fleet, quick: EvalProtocol
) -> None:
    held = fleet._device_processes.all[0].device
    with (
        pytest.raises(DeviceError, match="in use by process"),
        processes_here([held]) as device_processes,
        Fleet(device_processes, quick),
    ):
        pass


def test_a_device_that_is_in_use_is_left_out_and_the_others_judge(
    fleet: Fleet, quick: EvalProtocol, named_problem: NamedProblem
) -> None:
    held = fleet._device_processes.all[0].device
    free = held.model_copy(update={"id": f"{held.id}-free"})
    work = _candidates(named_problem("silu"), 3)
    with processes_here([held, free]) as device_processes, Fleet(device_processes, quick) as opened:
        found = list(opened.judge_all(work, timing=False))
        assert opened.lost == device_processes[:1]
        said = opened.why_lost(device_processes[0])
    assert said.startswith(f"device {held.kind} {held.id} is in use by process")
    assert {j.verdict.candidate_id for j in found} == {candidate.id for _, candidate in work}
    assert {j.verdict.device_id for j in found} == {free.id}


def test_each_device_is_named_if_all_are_in_use(fleet: Fleet, quick: EvalProtocol) -> None:
    one, two = (device_process.device for device_process in fleet._device_processes.all)
    refused = pytest.raises(DeviceError, match=f"{one.id} is in use .*{two.id} is in use")
    with refused, processes_here([one, two]) as device_processes, Fleet(device_processes, quick):
        pass


@pytest.fixture
def own_fleet(
    quick: EvalProtocol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Fleet]:
    """A fleet that may lose its judges and devices for good."""
    cpu = find_device(DeviceClass.CPU)
    twins = [cpu.model_copy(update={"id": f"{cpu.id}-lost-{number}"}) for number in range(2)]
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    with processes_here(twins) as device_processes, Fleet(device_processes, quick) as opened:
        yield opened


def _kill_judge(device_process: DeviceProcess) -> None:
    assert isinstance(device_process.process, Isolated)
    device_process.process.kill()


def test_a_dead_judge_is_started_again_and_no_candidate_is_lost(
    fleet: Fleet, named_problem: NamedProblem
) -> None:
    work, found = _candidates(named_problem("silu"), 8), list[Judgement]()
    first, _ = fleet._device_processes.all
    for judgement in fleet.judge_all(work, timing=False):
        if not found:
            _kill_judge(first)
        found.append(judgement)
    assert sorted(j.verdict.candidate_id for j in found) == sorted(c.id for _, c in work)
    assert fleet.lost == []


def test_the_candidates_of_a_judge_that_does_not_start_again_are_judged_by_another(
    own_fleet: Fleet, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, found = _candidates(named_problem("silu"), 8), list[Judgement]()
    first, second = own_fleet._device_processes.all
    monkeypatch.setattr(Isolated, "revive", lambda _: None)
    for judgement in own_fleet.judge_all(work, timing=False):
        if not found:
            _kill_judge(first)
        found.append(judgement)
    assert sorted(j.verdict.candidate_id for j in found) == sorted(c.id for _, c in work)
    assert own_fleet.lost == [first]
    assert found[-1].verdict.device_id == second.device.id


def _have_it_compute_no_more() -> None:
    """Break the device of this judge's process, as if a GPU had fallen off the bus."""

    def lost(device: Device) -> None:
        raise DeviceLostError(f"device {device.id} computes no more")

    Device.require_working = lost


def _have_it_say_so_at_once() -> None:
    """Break the device and let the first use of PyTorch fail."""

    def undisturbed(device: Device) -> AbstractContextManager[None]:
        raise RuntimeError(f"CUDA error on {device.id}")

    _have_it_compute_no_more()
    pool.undisturbed = undisturbed


def _have_it_say_so_at_last() -> None:
    """Break the device and let the last use of PyTorch fail."""
    before = pool.undisturbed

    @contextmanager
    def undisturbed(device: Device) -> Iterator[None]:
        with before(device):
            yield
        raise RuntimeError(f"CUDA error on {device.id}")

    _have_it_compute_no_more()
    pool.undisturbed = undisturbed


@pytest.mark.parametrize(
    "have_it_lost", [_have_it_compute_no_more, _have_it_say_so_at_once, _have_it_say_so_at_last]
)
def test_a_lost_device_gives_no_verdict_on_a_candidate(
    own_fleet: Fleet, named_problem: NamedProblem, have_it_lost: Callable[[], None]
) -> None:
    problem = named_problem("silu")
    first, second = own_fleet._device_processes.all
    first.process.submit(have_it_lost).result()
    broken = [Candidate(problem_id=problem.id, source=f"no {number}") for number in range(3)]
    work = [*((problem, each) for each in broken), *_candidates(problem, 3)]
    found = list(own_fleet.judge_all(work, timing=False))
    assert own_fleet.lost == [first]
    assert own_fleet.why_lost(first).endswith("computes no more")
    failed = [each.verdict for each in found if each.verdict.status is not Status.CORRECT]
    assert {verdict.device_id for verdict in failed} == {second.device.id}
    assert sorted(j.verdict.candidate_id for j in found) == sorted(c.id for _, c in work)


def test_a_judge_that_died_between_answers_is_missed(
    fleet: Fleet, named_problem: NamedProblem
) -> None:
    work = _candidates(named_problem("silu"), 6)
    judging = fleet.judge_all(work, timing=False)
    found = [next(judging)]
    _kill_judge(fleet._device_processes.all[0])
    executor = fleet._device_processes.all[0].process
    assert isinstance(executor, Isolated)
    until(lambda: executor.is_broken)
    found += judging
    judged = [each.verdict.candidate_id for each in found if isinstance(each, Judgement)]
    assert sorted(judged) == sorted(candidate.id for _, candidate in work)


def test_a_problem_that_cannot_be_judged_holds_up_no_other(
    fleet: Fleet, named_problem: NamedProblem, tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("no worker sees this")
    good = named_problem("silu")
    read = f"made = open({str(tmp_path / 'mine.txt')!r}).read()"
    source = good.source.replace("def forward", f"{read}\n\n    def forward")
    bad = good.model_copy(update={"source": source})
    work = [*_candidates(bad, 2), *_candidates(good, 2)]
    found = list(fleet.judge_all(work, timing=False))
    refused = {each.problem_id for each in found if isinstance(each, Refusal)}
    judged = [each.verdict.problem_id for each in found if isinstance(each, Judgement)]
    assert (refused, judged) == ({bad.id}, [good.id] * 2)


def test_the_loss_of_all_judges_is_an_error_of_one_line(
    own_fleet: Fleet, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Isolated, "revive", lambda _: None)
    judging = own_fleet.judge_all(_candidates(named_problem("silu"), 8), timing=False)
    next(judging)
    for device_process in own_fleet._device_processes.all:
        _kill_judge(device_process)
    with pytest.raises(WorkerError, match="start again"):
        list(judging)
    with pytest.raises(WorkerError, match="start again"):
        list(own_fleet.judge_all(_candidates(named_problem("silu"), 1), timing=False))


# --- claims --------------------------------------------------------------------------------------


def _judgement(device: str, speedup: float | None) -> Judgement:
    measurement = (
        None
        if speedup is None
        else Measurement.model_validate(
            {
                "baseline": "eager",
                "speedup": speedup,
                "certified": speedup,
                "alpha": 0.01,
                "num_quads": 9,
                "bucket_medians": (speedup,),
                "bucket_variance": 0.0,
                "is_stable": True,
                "reference_us": 100.0 * speedup,
                "candidate_us": 100.0,
            }
        )
    )
    failed = {"status": Status.INCORRECT, "reason": "wrong output"}
    status = {"status": Status.CORRECT} if speedup is not None else failed
    verdict = Verdict(
        problem_id="p",
        candidate_id="c",
        protocol_id="x",
        device_kind="cpu",
        device_id=device,
        measurement=measurement,
        judged_at="2026-01-01T00:00:00+00:00",
        judge_s=1.0,
        **status,
    )
    return Judgement(verdict, ())


@pytest.mark.parametrize(
    ("first", "second", "certified"), [(4.0, 4.1, 4.0), (4.0, 3.9, 3.9), (8.0, 2.0, 1.0)]
)
def test_the_smaller_claim_of_two_devices_counts_if_they_agree(
    first: float, second: float, certified: float, quick: EvalProtocol
) -> None:
    both = confirmed(_judgement("one", first), _judgement("two", second), quick)
    assert both.verdict.measurement is not None
    assert both.verdict.measurement.certified == certified
    assert both.verdict.measurement.confirmed_on == "two"


def test_a_candidate_that_fails_on_the_other_device_has_failed(quick: EvalProtocol) -> None:
    both = confirmed(_judgement("one", 4.0), _judgement("two", None), quick)
    assert both.verdict.status is Status.INCORRECT
