"""A device's ceilings are measured in a bounded number of kernels, whatever the clock says."""

from __future__ import annotations

import itertools

import pytest

from cudal1.harness.device import ceilings

KERNEL_S = 2e-5


class Clock:
    """A clock by which each kernel takes as long; it stands still during some of its readings."""

    def __init__(self, stands_still: range) -> None:
        self.num_kernels = 0
        self._stands_still = stands_still
        self._readings = itertools.count()
        self._last_s = 0.0

    def kernel(self) -> None:
        self.num_kernels += 1

    def perf_counter(self) -> float:
        if next(self._readings) not in self._stands_still:
            self._last_s = self.num_kernels * KERNEL_S
        return self._last_s


@pytest.fixture(params=[range(0), range(2, 4), range(5, 6)])
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock(request.param)
    monkeypatch.setattr(ceilings, "time", made)
    return made


def test_a_clock_that_stands_still_for_a_moment_makes_no_block_of_many_kernels(
    clock: Clock,
) -> None:
    found_us = ceilings._fastest_us(clock.kernel, lambda: None, "cpu")
    assert found_us == pytest.approx(KERNEL_S * 1e6)
    assert clock.num_kernels < 2_000
