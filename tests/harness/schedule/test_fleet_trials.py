"""Devices try each problem once before they judge its candidates."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import DeviceLostError, WorkerError
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule.assignment import Refusal
from cudal1.harness.schedule.device_processes import processes_here
from cudal1.harness.schedule.fleet import Fleet
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status
from tests.harness.noting import Noting

pytestmark = pytest.mark.slow

NamedProblem = Callable[[str], Problem]
CONSTANT = "the output is constant"
NUMBERS = itertools.count()


@contextmanager
def _opened(count: int, quick: EvalProtocol, folder: Path) -> Iterator[Fleet]:
    """Open a fleet of devices that are all this CPU."""
    cpu = find_device(DeviceClass.CPU)
    devices = [cpu.model_copy(update={"id": f"{cpu.id}-{i}"}) for i in range(count)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", None)
        with processes_here(devices) as device_processes, Fleet(device_processes, quick) as opened:
            yield opened


@pytest.fixture(scope="module", params=[1, 2])
def fleet(
    request: pytest.FixtureRequest, quick: EvalProtocol, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """A fleet of one or two devices, for all tests: each has problems that it has not seen."""
    with _opened(request.param, quick, tmp_path_factory.mktemp("fleet")) as opened:
        yield opened


@pytest.fixture(params=[1, 2])
def own_fleet(
    request: pytest.FixtureRequest, quick: EvalProtocol, tmp_path: Path
) -> Iterator[Fleet]:
    """A fleet of one or two devices, which may be lost."""
    with _opened(request.param, quick, tmp_path) as opened:
        yield opened


def _candidates(problem: Problem, count: int) -> list[tuple[Problem, Candidate]]:
    return [
        (problem, Candidate(problem_id=problem.id, source=f"{problem.null_source}\n# {number}"))
        for number in range(count)
    ]


def _new(problem: Problem, count: int) -> list[Problem]:
    """Return problems that differ by a comment alone, and that no fleet has seen."""
    sources = [f"{problem.source}\n# problem {next(NUMBERS)}\n" for _ in range(count)]
    return [problem.model_copy(update={"source": source}) for source in sources]


def test_each_problem_is_tried_once_by_any_number_of_devices_for_any_number_of_candidates(
    fleet: Fleet, named_problem: NamedProblem, tmp_path: Path
) -> None:
    problems = _new(named_problem("silu"), 3)
    bad = problems[1]
    trial = Noting(tmp_path, {bad.id: (CONSTANT,)})
    work = [pair for problem in problems for pair in _candidates(problem, 4)]
    found = list(fleet.judge_all(work, timing=False, trial=trial))
    assert [trial.num_tries(problem) for problem in problems] == [1, 1, 1]
    refused = [each for each in found if isinstance(each, Refusal)]
    assert {(each.problem_id, each.reason) for each in refused} == {(bad.id, CONSTANT)}
    judged = [each.verdict for each in found if isinstance(each, Judgement)]
    assert {verdict.status for verdict in judged} == {Status.CORRECT}
    assert Counter(verdict.problem_id for verdict in judged) == {
        problem.id: 4 for problem in problems if problem is not bad
    }
    assert len({each.candidate_id for each in refused}) == 4


def test_one_problem_alone_is_tried_by_one_device(
    fleet: Fleet, named_problem: NamedProblem, tmp_path: Path
) -> None:
    (problem,), trial = _new(named_problem("silu"), 1), Noting(tmp_path)
    found = list(fleet.judge_all(_candidates(problem, 8), timing=False, trial=trial))
    assert sum(isinstance(each, Judgement) for each in found) == 8
    assert trial.num_tries(problem) == 1


def test_a_second_run_tries_nothing(
    fleet: Fleet, named_problem: NamedProblem, tmp_path: Path
) -> None:
    problems = _new(named_problem("silu"), 2)
    first, second = (Noting(tmp_path, {problems[0].id: (CONSTANT,)}) for _ in range(2))
    work = [pair for problem in problems for pair in _candidates(problem, 2)]
    for trial in (first, second):
        found = list(fleet.judge_all(work, timing=False, trial=trial))
        assert [each.reason for each in found if isinstance(each, Refusal)] == [CONSTANT] * 2
        assert sum(isinstance(each, Judgement) for each in found) == 2
    assert [second.num_tries(problem) for problem in problems] == [1, 1]


def test_the_first_verdict_comes_while_others_are_untried(
    fleet: Fleet, named_problem: NamedProblem, tmp_path: Path
) -> None:
    problems, trial = _new(named_problem("silu"), 12), Noting(tmp_path)
    work = [pair for problem in problems for pair in _candidates(problem, 1)]
    judging = fleet.judge_all(work, timing=False, trial=trial)
    assert isinstance(next(judging), Judgement)
    assert sum(map(trial.num_tries, problems)) < len(problems)
    assert len(list(judging)) == len(problems) - 1
    assert [trial.num_tries(problem) for problem in problems] == [1] * len(problems)


def _have_it_compute_no_more() -> None:
    """Break this process's device; runs in a device's process."""

    def lost(device: Device) -> None:
        raise DeviceLostError(f"device {device.id} computes no more")

    Device.require_working = lost


def test_a_lost_device_decides_nothing_about_a_reference(
    own_fleet: Fleet, named_problem: NamedProblem, tmp_path: Path
) -> None:
    good, bad = _new(named_problem("silu"), 2)
    trial = Noting(tmp_path, {bad.id: (CONSTANT,)})
    sick, *others = own_fleet._device_processes.all
    sick.process.submit(_have_it_compute_no_more).result()
    work = [*_candidates(bad, 1), *_candidates(good, 1)]
    judging = own_fleet.judge_all(work, timing=False, trial=trial)
    if not others:
        with pytest.raises(WorkerError, match="computes no more: start again"):
            list(judging)
        assert trial.known(bad, sick.device) is None
        return
    found = list(judging)
    assert own_fleet.lost == [sick]
    assert own_fleet.why_lost(sick) == f"device {sick.device.id} computes no more"
    (refused,) = [each for each in found if isinstance(each, Refusal)]
    assert (refused.problem_id, refused.reason) == (bad.id, CONSTANT)
    (judged,) = [each for each in found if isinstance(each, Judgement)]
    assert judged.verdict.status is Status.CORRECT
    assert trial.num_tries(bad) == 2  # the sick device's try counts for nothing
