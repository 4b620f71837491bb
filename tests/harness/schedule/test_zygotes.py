"""One process forks workers without compilers, another one those that compile."""

from __future__ import annotations

from typing import Any

import pytest

from cudal1.errors import WorkerError
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.schedule import zygotes as module
from cudal1.harness.schedule.zygotes import Zygotes
from cudal1.problem import DeviceClass


class Played:
    """A process that forks workers, which runs or has ended."""

    def __init__(self) -> None:
        self.runs, self.is_closed = True, False

    def is_running(self) -> bool:
        return self.runs

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Zygotes:
    """Return processes that do nothing."""

    def start(_device: Device, *, compilers: bool = False) -> Any:
        return Played()

    monkeypatch.setattr(module, "launch", start)
    return Zygotes(find_device(DeviceClass.CPU), start)


def test_each_process_starts_once_and_when_it_is_needed(played: Zygotes) -> None:
    one = played.source(compilers=False)
    assert list(played._sources) == [False]
    other = played.source(compilers=True)
    assert other is not one
    assert played.source(compilers=False) is one
    assert played.source(compilers=True) is other


def test_the_end_of_one_process_leaves_the_other(played: Zygotes) -> None:
    one: Any = played.source(compilers=False)
    other: Any = played.source(compilers=True)
    other.runs = False
    assert played.ended() == [other]
    assert (one.is_closed, other.is_closed) == (False, True)
    assert one in played
    assert other not in played


def test_a_process_without_compilers_takes_the_place_of_one_that_does_not_start(
    played: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[bool] = []

    def launch(_device: Device, *, compilers: bool) -> None:
        tries.append(compilers)
        raise WorkerError("it does not start")

    monkeypatch.setattr(module, "launch", launch)
    one: Any = played.source(compilers=False)
    assert [played.source(compilers=True) for _ in range(2)] == [one, one]
    assert tries == [True]
    played.close()
    assert one.is_closed
