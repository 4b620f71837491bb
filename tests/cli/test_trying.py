"""References are tried by the processes of the devices that are to judge."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cudal1.cli import trying
from cudal1.cli.settings import choose
from cudal1.cli.trying import AT_A_TIME, try_references
from cudal1.errors import DeviceError, DeviceLostError, WorkerError
from cudal1.harness import Device, errand, find_device
from cudal1.harness.seats import seats_here
from cudal1.problem import DeviceClass, Problem
from cudal1.services.trial import TOO_SLOW
from cudal1.suite.loader import load_suite

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
        notes, complaints, _ = try_references([*good, bad, good[0]], seats, SETTINGS, wait_s=0)
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


def test_a_device_that_is_in_use_is_left_out_and_the_others_try_its_problems() -> None:
    cpu = find_device(DeviceClass.CPU)
    held, free = (cpu.model_copy(update={"id": f"{cpu.id}-{name}"}) for name in ("busy", "free"))
    problems = _problems(2)
    with held.locked(), seats_here([held, free]) as seats:
        notes, complaints, left = try_references(problems, seats, SETTINGS, wait_s=0)
    assert notes.keys() == {problem.id for problem in problems}
    assert left == seats[1:]
    (line,) = complaints
    assert line.startswith(f"left out: device {held.kind} {held.id} is in use by process")


def test_where_all_devices_are_in_use_each_is_named() -> None:
    cpu = find_device(DeviceClass.CPU)
    one, two = (cpu.model_copy(update={"id": f"{cpu.id}-all-{number}"}) for number in range(2))
    refused = pytest.raises(DeviceError, match=r"is in use .*; device .* is in use")
    with one.locked(), two.locked(), seats_here([one, two]) as seats, refused as caught:
        try_references(_problems(2), seats, SETTINGS, wait_s=0)
    assert one.id in str(caught.value)
    assert two.id in str(caught.value)


@pytest.mark.parametrize("num_left", [0, 1])
def test_what_a_process_that_dies_was_to_try_is_tried_by_the_others(num_left: int) -> None:
    cpu = find_device(DeviceClass.CPU)
    ids = [f"{cpu.id}-dies-{number}" for number in range(1 + num_left)]
    with seats_here([cpu.model_copy(update={"id": each}) for each in ids]) as seats:
        os.kill(seats[0].process.submit(os.getpid).result(), signal.SIGKILL)
        if num_left:
            notes, complaints, _ = try_references(_problems(2), seats, SETTINGS, wait_s=0)
            assert (len(notes), complaints) == (2, [])
        else:
            with pytest.raises(WorkerError, match="has died: start again"):
                try_references(_problems(2), seats, SETTINGS, wait_s=0)


class Played:
    """What is said of problems, in the order of asking."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, says: dict[str, list[str]]) -> None:
        """`says`: by the name of a problem, why not, each time that it is tried; then nothing."""
        self._says = says
        self.asked: list[list[str]] = []
        monkeypatch.setattr(trying, "probe_all", self._probe_all)
        monkeypatch.setattr(errand, "begin_zygote", lambda _: None)

    def _probe_all(self, problems: Sequence[Problem], **_: object) -> Iterator[tuple[Problem, Any]]:
        self.asked.append([problem.name for problem in problems])
        for problem in problems:
            waiting = self._says.get(problem.name)
            reason = waiting.pop(0) if waiting else None
            yield problem, SimpleNamespace(reason=reason, rejection=None)


@pytest.mark.parametrize(
    "said",
    [
        f"{TOO_SLOW}: 90 ms a call",
        "raises OutOfMemoryError: CUDA out of memory. Tried to allocate 9.00 GiB",
        "raises AcceleratorError: CUDA error: out of memory",
        "raises RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate",
        "raises RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to",
        "raises MemoryError:",
        "too large for cpu: CUDA out of memory",
    ],
)
def test_who_is_slow_or_lacks_memory_beside_another_problem_is_tried_alone(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    never, fine, disturbed = _problems(3)
    batch = [never, fine, disturbed]
    played = Played(monkeypatch, {never.name: [said, said], disturbed.name: [said]})
    cpu = find_device(DeviceClass.CPU)
    device = cpu.model_copy(update={"id": f"{cpu.id}-alone"})
    notes, complaints = trying._try(batch, device, SETTINGS, 0)
    assert played.asked == [[each.name for each in batch], [never.name, disturbed.name]]
    assert notes.keys() == {fine.id, disturbed.id}
    (line,) = complaints
    assert line.endswith(said)


def test_what_nobody_beside_it_explains_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, fine = _problems(2)
    played = Played(monkeypatch, {wrong.name: ["raises ValueError: no such shape"]})
    cpu = find_device(DeviceClass.CPU)
    device = cpu.model_copy(update={"id": f"{cpu.id}-once"})
    notes, complaints = trying._try([wrong, fine], device, SETTINGS, 0)
    assert (played.asked[1:], notes.keys()) == ([[]], {fine.id})
    assert complaints == [f"{wrong.key}: cannot be judged: raises ValueError: no such shape"]


def test_a_reference_that_fills_the_memory_costs_the_others_nothing() -> None:
    """The trial finds enough of it; the kill table does not."""
    large, good = _problems(2)
    fills = (
        "import sys, torch\n"
        "if 'cudal1.harness.mutants' in sys.modules:\n"
        "    def full(*_): raise torch.OutOfMemoryError('CUDA out of memory. Tried to')\n"
        "    Model.__init__ = full\n"
    )
    large = large.model_copy(update={"source": f"{large.source}\n{fills}"})
    with seats_here([find_device(DeviceClass.CPU).model_copy(update={"id": "full"})]) as seats:
        notes, complaints, _ = try_references([large, good], seats, SETTINGS, wait_s=0)
    assert notes.keys() == {good.id}
    (line,) = complaints
    assert "too large for cpu: CUDA out of memory; lower its sizes" in line


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
            notes, complaints, left = try_references([bad, good], seats, SETTINGS, wait_s=0)
            assert left == seats[1:]
            assert notes.keys() == {good.id}
            assert complaints[0] == f"left out: device {ids[0]} computes no more"
            assert complaints[1].startswith(f"{bad.key}: cannot be judged")
        else:
            with pytest.raises(WorkerError, match="computes no more: start again"):
                try_references([bad, good], seats, SETTINGS, wait_s=0)
