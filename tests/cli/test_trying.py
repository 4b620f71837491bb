"""References are tried by the processes of the devices that are to judge."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence

import pytest

from cudal1.cli import trying
from cudal1.cli.settings import choose
from cudal1.cli.trying import AT_A_TIME, try_references
from cudal1.errors import DeviceError, DeviceLostError, WorkerError
from cudal1.harness import Device, errand, find_device
from cudal1.harness.seats import seats_here
from cudal1.problem import Admission, DeviceClass, Problem
from cudal1.suite.loader import load_suite
from cudal1.suite.trial import TOO_SLOW

SETTINGS = choose(None, "cpu", "cpu", None)


def _problems(count: int) -> list[Problem]:
    return [problem for problem in load_suite(DeviceClass.CPU) if problem.level == 1][:count]


def _has_begun() -> bool:
    """Whether a judge's process starts what its pool will need."""
    return errand._coming is not None  # pyright: ignore[reportPrivateUsage]


def _constant(problem: Problem) -> Problem:
    source = problem.source.replace("return ", "return 0 * ", 1)
    return problem.model_copy(update={"source": source})


@pytest.mark.slow
def test_each_problem_is_tried_once_on_any_number_of_devices() -> None:
    cpu = find_device(DeviceClass.CPU)
    twins = [cpu.model_copy(update={"id": f"{cpu.id}-tried-{number}"}) for number in range(2)]
    good, bad = _problems(3), _constant(_problems(4)[3])
    with seats_here(twins) as seats:
        notes, complaints = try_references([*good, bad, good[0]], seats, SETTINGS, wait_s=0)
        assert all(seat.process.submit(_has_begun).result() for seat in seats)
    assert notes.keys() == {problem.id for problem in good}
    (complaint,) = complaints
    assert complaint.startswith(f"{bad.key}: cannot be judged")


def test_a_device_that_is_in_use_is_named() -> None:
    cpu = find_device(DeviceClass.CPU)
    held = cpu.model_copy(update={"id": f"{cpu.id}-held"})
    problems = _problems(2 * AT_A_TIME)
    refused = pytest.raises(DeviceError, match="in use by process")
    with held.locked(), seats_here([held]) as seats, refused:
        try_references(problems, seats, SETTINGS, wait_s=0)


@pytest.mark.parametrize("num_left", [0, 1])
def test_what_a_process_that_dies_was_to_try_is_tried_by_the_others(num_left: int) -> None:
    cpu = find_device(DeviceClass.CPU)
    ids = [f"{cpu.id}-dies-{number}" for number in range(1 + num_left)]
    with seats_here([cpu.model_copy(update={"id": each}) for each in ids]) as seats:
        os.kill(seats[0].process.submit(os.getpid).result(), signal.SIGKILL)
        if num_left:
            notes, complaints = try_references(_problems(2), seats, SETTINGS, wait_s=0)
            assert (len(notes), complaints) == (2, [])
        else:
            with pytest.raises(WorkerError, match="has died: start again"):
                try_references(_problems(2), seats, SETTINGS, wait_s=0)


def test_who_is_slow_beside_another_problem_is_tried_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def admit_all(
        problems: Sequence[Problem], *, max_reference_ms: float
    ) -> Iterator[tuple[Problem, Admission]]:
        tried.append([problem.name for problem in problems])
        for problem in problems:
            is_slow = problem is slow or (problem is disturbed and len(tried) == 1)
            yield problem, Admission(
                problem_id=problem.id, admitted=not is_slow,
                reason=f"{TOO_SLOW}: 90 ms a call" if is_slow else None,
            )  # fmt: skip

    tried: list[list[str]] = []
    fast, disturbed, slow = _problems(3)
    monkeypatch.setattr(trying, "admit_all", admit_all)
    found = {problem.name: each.admitted for problem, each in trying.admissions(
        [slow, fast, disturbed], SETTINGS
    )}  # fmt: skip
    assert found == {fast.name: True, slow.name: False, disturbed.name: True}
    assert tried == [[slow.name, fast.name, disturbed.name], [slow.name, disturbed.name]]


def _have_it_compute_no_more() -> None:
    """In a device's process."""

    def lost(device: Device) -> None:
        raise DeviceLostError(f"device {device.id} computes no more")

    Device.require_working = lost


@pytest.mark.parametrize("num_left", [0, 1])
def test_what_a_lost_device_says_of_a_reference_is_nothing(num_left: int) -> None:
    cpu = find_device(DeviceClass.CPU)
    ids = [f"{cpu.id}-sick-{number}" for number in range(1 + num_left)]
    good, bad = _problems(2)[0], _constant(_problems(2)[1])
    with seats_here([cpu.model_copy(update={"id": each}) for each in ids]) as seats:
        seats[0].process.submit(_have_it_compute_no_more).result()
        if num_left:
            notes, complaints = try_references([bad, good], seats, SETTINGS, wait_s=0)
            assert notes.keys() == {good.id}
            assert complaints[0] == f"device {ids[0]} computes no more"
            assert complaints[1].startswith(f"{bad.key}: cannot be judged")
        else:
            with pytest.raises(WorkerError, match="computes no more: start again"):
                try_references([bad, good], seats, SETTINGS, wait_s=0)
