"""A device's process starts a zygote and tries problems ahead of its work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError, WorkerError
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.judgement import Judgement
from cudal1.harness.sandbox.launch import Source, launch
from cudal1.harness.schedule import assignment
from cudal1.harness.schedule.assignment import Assignment, Refusal
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status
from tests.harness.noting import Noting, Said

pytestmark = pytest.mark.slow


@pytest.fixture
def device() -> Iterator[Device]:
    cpu = find_device(DeviceClass.CPU)
    yield cpu.model_copy(update={"id": f"{cpu.id}-errand"})
    assignment.close_pool()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """The zygotes that were started."""
    found: list[Source] = []

    def noted(device: Device) -> Source:
        found.append(launch(device))
        return found[-1]

    monkeypatch.setattr(assignment, "launch", noted)
    return found


def test_a_zygote_begun_ahead_forks_the_workers_and_ends_with_the_pool(
    device: Device,
    launched: list[Source],
    quick: EvalProtocol,
    named_problem: Callable[[str], Problem],
) -> None:
    problem = named_problem("silu")
    for _ in range(2):
        assignment.begin_zygote(device)
    assignment.open_pool(device, quick, 0.0)
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    said = assignment.judge(Assignment(problem, candidate, timing=False)).result()
    assert not isinstance(said, assignment.Refusal)
    assert said.verdict.status is Status.CORRECT
    (source,) = launched
    assert source.is_running()
    assignment.close_pool()
    assert not source.is_running()


def test_a_pool_without_a_zygote_begun_ahead_starts_its_own(
    device: Device, launched: list[Source], quick: EvalProtocol
) -> None:
    for number in (1, 2):
        assignment.open_pool(device, quick, 0.0)
        assignment.close_pool()
        assert len(launched) == number


def test_a_zygote_that_did_not_start_or_has_died_is_started_again(
    device: Device, launched: list[Source], monkeypatch: pytest.MonkeyPatch, quick: EvalProtocol
) -> None:
    def fails(_: Device) -> Source:
        raise WorkerError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(assignment, "launch", fails)
        assignment.begin_zygote(device)
    assignment.open_pool(device, quick, 0.0)
    assert [source.is_running() for source in launched] == [True]
    assignment.close_pool()
    assignment.begin_zygote(device)
    while len(launched) < 2:
        time.sleep(0.01)
    launched[1].close()
    assignment.open_pool(device, quick, 0.0)
    assert [source.is_running() for source in launched] == [False, False, True]


def test_a_zygote_begun_ahead_ends_if_no_pool_opens(
    device: Device, launched: list[Source], quick: EvalProtocol
) -> None:
    assignment.begin_zygote(device)
    with device.locked(), pytest.raises(DeviceError):
        assignment.open_pool(device, quick, 0.0)
    assignment.close_pool()
    assert [source.is_running() for source in launched] == [False]


# --- trials --------------------------------------------------------------------------------------

NOTE = "lets zeros through"


def _said(problem: Problem, trial: Noting, number: int = 0) -> Judgement | Refusal:
    source = f"{problem.null_source}\n# {number}"
    candidate = Candidate(problem_id=problem.id, source=source)
    said = assignment.judge(Assignment(problem, candidate, timing=False, trial=trial))
    return said if isinstance(said, Refusal) else said.result()


def test_a_trial_s_finding_is_kept_and_its_note_is_on_each_verdict(
    device: Device, quick: EvalProtocol, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    problem, trial = named_problem("silu"), Noting(tmp_path, note=NOTE)
    assignment.open_pool(device, quick, 0.0)
    said = [_said(problem, trial, number) for number in range(3)]
    assert [isinstance(each, Judgement) and each.note for each in said] == [NOTE] * 3
    assert [isinstance(each, Judgement) and each.found for each in said] == [None] * 3
    assert trial.num_tries(problem) == 1
    assert trial.known(problem, device) == Said(None, NOTE)


def test_a_problem_that_cannot_be_judged_is_refused_with_its_reason_which_is_kept(
    device: Device, quick: EvalProtocol, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    problem = named_problem("silu")
    trial = Noting(tmp_path, {problem.id: ("the output is constant",)})
    assignment.open_pool(device, quick, 0.0)
    for number in range(3):
        said = _said(problem, trial, number)
        assert isinstance(said, Refusal)
        assert said.reason == "the output is constant"
    assert trial.num_tries(problem) == 1
    assert trial.known(problem, device) == Said("the output is constant")


@pytest.mark.parametrize("reason", [None, "the output is constant"])
def test_a_problem_that_an_earlier_run_has_tried_is_not_tried_again(
    reason: str | None,
    device: Device,
    quick: EvalProtocol,
    named_problem: Callable[[str], Problem],
    tmp_path: Path,
) -> None:
    problem, trial = named_problem("silu"), Noting(tmp_path, note=NOTE)
    trial.keep(problem, device, Said(reason))
    assignment.open_pool(device, quick, 0.0)
    said = _said(problem, trial)
    if isinstance(said, Refusal):
        assert said.reason == reason
    else:
        assert (reason, said.note) == (None, NOTE)
        assert said.verdict.status is Status.CORRECT
    assert trial.num_tries(problem) == 0


def test_a_reference_that_ends_its_process_is_refused_and_not_kept(
    device: Device, quick: EvalProtocol, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    good = named_problem("silu")
    problem = good.model_copy(update={"source": f"{good.source}\nimport os; os._exit(3)\n"})
    trial = Noting(tmp_path)
    assignment.open_pool(device, quick, 0.0)
    said = _said(problem, trial)
    assert isinstance(said, Refusal)
    assert said.reason == "its reference ends its process (exit status 3)"
    assert trial.known(problem, device) is None


def test_another_pool_tries_a_known_problem_again(
    device: Device, quick: EvalProtocol, named_problem: Callable[[str], Problem], tmp_path: Path
) -> None:
    problem = named_problem("silu")
    for number in (1, 2):
        trial = Noting(tmp_path / f"{number}")
        trial.folder.mkdir()
        assignment.open_pool(device, quick, 0.0)
        assert isinstance(_said(problem, trial), Judgement)
        assert trial.num_tries(problem) == 1
        assignment.close_pool()
