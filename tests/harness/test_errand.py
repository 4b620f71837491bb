"""What a device's process is asked ahead of its work serves that work."""

from __future__ import annotations

import time
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

    monkeypatch.setattr(errand, "launch", noted)
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
    said = errand.judge(Errand(problem, candidate, timing=False)).result()
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


def test_one_that_did_not_start_or_has_died_is_started_again(
    device: Device, launched: list[Source], monkeypatch: pytest.MonkeyPatch, quick: EvalProtocol
) -> None:
    def fails(_: Device) -> Source:
        raise WorkerError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(errand, "launch", fails)
        errand.begin_zygote(device)
    errand.open_pool(device, quick, 0.0)
    assert [source.is_running() for source in launched] == [True]
    errand.close_pool()
    errand.begin_zygote(device)
    while len(launched) < 2:
        time.sleep(0.01)
    launched[1].close()
    errand.open_pool(device, quick, 0.0)
    assert [source.is_running() for source in launched] == [False, False, True]


def test_what_was_begun_ends_where_no_pool_opens(
    device: Device, launched: list[Source], quick: EvalProtocol
) -> None:
    errand.begin_zygote(device)
    with device.locked(), pytest.raises(DeviceError):
        errand.open_pool(device, quick, 0.0)
    errand.close_pool()
    assert [source.is_running() for source in launched] == [False]
