"""A calibration adds up the verdicts of null tests."""

from __future__ import annotations

from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.harness.schedule.calibration import calibrate, quantile
from cudal1.measurement import Measurement
from cudal1.verdict import Status, Verdict


def verdict(certified: float | None, speedup: float = 1.0) -> Verdict:
    parts: dict[str, Any] = {"status": Status.CRASHED, "reason": "it fell over"}
    if certified is not None:
        measurement = Measurement(
            baseline=Baseline.EAGER,
            speedup=speedup,
            certified=certified,
            alpha=0.01,
            num_quads=9,
            bucket_medians=(1.0,),
            bucket_variance=0.0,
            is_stable=True,
            reference_us=10.0,
            candidate_us=10.0,
        )
        parts = {"status": Status.CORRECT, "measurement": measurement}
    return Verdict(
        problem_id="p",
        candidate_id="c",
        protocol_id="x",
        device_kind="cpu",
        device_id="d",
        judged_at="2026-01-01T00:00:00+00:00",
        judge_s=0.1,
        **parts,
    )


def test_certified_gains_of_a_reference_on_itself_are_counted() -> None:
    found = calibrate([verdict(1.0), verdict(1.01), verdict(1.02), verdict(0.9)])
    assert (found.num_above_100, found.num_above_101) == (2, 1)
    assert not found.is_clean


def test_a_reference_that_fails_against_itself_is_counted() -> None:
    found = calibrate([verdict(1.0), verdict(None)])
    assert found.num_wrong == 1
    assert not found.is_clean


def test_a_gain_of_one_percent_is_allowed() -> None:
    assert calibrate([verdict(1.01), verdict(1.0)]).is_clean


def test_the_spread_is_of_the_estimates() -> None:
    found = calibrate([verdict(1.0, 1 + i / 100) for i in range(101)])
    assert (found.low, found.median, found.high) == pytest.approx((1.05, 1.5, 1.95))


def test_an_empty_calibration_has_no_spread() -> None:
    found = calibrate([])
    assert (found.low, found.median, found.high) == (None, None, None)
    assert quantile([3.0], 0.95) == 3.0
