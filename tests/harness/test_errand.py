"""What a device's process is asked ahead of its work serves that work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from cudal1.candidate import Candidate
from cudal1.errors import DeviceError, WorkerError
from cudal1.harness import errand, find_device
from cudal1.harness.device import Device
from cudal1.harness.errand import Errand
from cudal1.harness.launch import Source, launch
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status


@pytest.fixture
def device() -> Iterator[Device]:
    cpu = find_device(DeviceClass.CPU)
    yield cpu.model_copy(update={"id": f"{cpu.id}-errand"})
    errand.close_pool()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Source]:
    """What was started to fork workers."""
    found: list[Source] = []

    def noted(device: Device) -> Source:
        found.append(launch(device))
        return found[-1]

    for place in ("errand", "zygote"):
        monkeypatch.setattr(f"cudal1.harness.{place}.launch", noted)
    return found


def test_what_was_begun_ahead_forks_the_workers_and_ends_with_the_pool(
    device: Device,
    launched: list[Source],
    quick: EvalProtocol,
    named_problem: Callable[[str], Problem],
) -> None:
    problem = named_problem("silu")
    for _ in range(2):
        errand.begin_zygote(device)
    errand.open_pool(device, quick, 0.0)
    candidate = Candidate(problem_id=problem.id, source=problem.null_source)
    said = errand.judge(Errand(problem, candidate, timing=False))
    assert not isinstance(said, errand.Refusal)
    assert said.verdict.status is Status.CORRECT
    (source,) = launched
    assert source.is_running()
    errand.close_pool()
    assert not source.is_running()


def test_a_pool_for_which_nothing_was_begun_starts_its_own(
    device: Device, launched: list[Source], quick: EvalProtocol
) -> None:
    for number in (1, 2):
        errand.open_pool(device, quick, 0.0)
        errand.close_pool()
        assert len(launched) == number


def test_what_does_not_start_is_said_by_the_pool_that_was_to_have_it(
    device: Device, monkeypatch: pytest.MonkeyPatch, quick: EvalProtocol
) -> None:
    def fails(_: Device) -> Source:
        raise WorkerError("no memory")

    monkeypatch.setattr(errand, "launch", fails)
    errand.begin_zygote(device)
    with pytest.raises(WorkerError, match="no memory"):
        errand.open_pool(device, quick, 0.0)
    errand.open_pool(device, quick, 0.0)  # and another try is another one


def test_what_was_begun_ahead_ends_where_the_device_is_in_use(
    device: Device, launched: list[Source], quick: EvalProtocol
) -> None:
    errand.begin_zygote(device)
    with device.locked(), pytest.raises(DeviceError):
        errand.open_pool(device, quick, 0.0)
    assert not launched[0].is_running()
