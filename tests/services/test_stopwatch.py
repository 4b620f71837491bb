"""Tests that the parts of a step's time add up, in turn and side by side."""

from __future__ import annotations

import pytest

from cudal1.harness.device.device import Device
from cudal1.harness.device.sharing import Sharing
from cudal1.problem import DeviceClass
from cudal1.services.stopwatch import Part, Stopwatch

DEVICE = Device(device_class=DeviceClass.CPU, kind="cpu", id="x", worker_core=None)
STEP = ((Part.OWN, 1.0), (Part.GENERATE, 4.0), (Part.VERDICTS, 3.0), (Part.TRAIN, 2.0))


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.s = 100.0

    def __call__(self) -> float:
        return self.s


def told(
    *, is_beside: bool, num_judges: int = 1, judge_s: float, build_s: float
) -> dict[str, float]:
    clock = Clock()
    devices = (DEVICE,) * num_judges
    watch = Stopwatch(Sharing(devices, 1, is_beside, frozenset(), frozenset()), clock)
    clock.s += 50  # before the step
    watch.restart()
    for part, seconds in STEP:
        clock.s += seconds
        watch.lap(part)
    return watch.numbers(judge_s=judge_s, build_s=build_s)


def test_parts_in_turn_add_up_to_the_step() -> None:
    found = told(is_beside=False, judge_s=2.0, build_s=0.5)
    assert found["step_s"] == 10
    parts = ("generate_s", "build_s", "judge_s", "train_s", "rest_s")
    assert sum(found[part] for part in parts) == pytest.approx(10)
    assert found["rest_s"] == 1.5  # prompts, and the part of the wait beyond the verdicts
    assert found["idle"] == pytest.approx(0.2)  # of ten seconds the device worked for eight


def test_each_device_beside_the_policy_has_its_own_idle_time() -> None:
    found = told(is_beside=True, judge_s=7.0, build_s=0.0)
    assert found["rest_s"] == 1.0
    assert found["idle"] == pytest.approx(1 - (6 + 7) / 20)


def test_several_judges_share_the_wait() -> None:
    found = told(is_beside=True, num_judges=3, judge_s=6.0, build_s=1.5)
    assert found["rest_s"] == 1.5
    assert found["idle"] == pytest.approx(1 - (6 + 6) / 40)


def test_each_step_starts_from_zero() -> None:
    clock = Clock()
    watch = Stopwatch(Sharing((DEVICE,), 1, False, frozenset(), frozenset()), clock)
    for _ in range(2):
        watch.restart()
        clock.s += 3
        watch.lap(Part.TRAIN)
        assert watch.numbers(judge_s=0.0, build_s=0.0)["step_s"] == 3
