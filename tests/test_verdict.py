"""Tests that status and parts of a verdict agree, and that some measurements give no gain."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from cudal1.baseline import Baseline
from cudal1.measurement import Measurement
from cudal1.verdict import RESTRICTING, FlagSource, HackFlag, Properties, Status, Verdict

SEEN = HackFlag(kind="cached_output", source=FlagSource.GUARD, evidence="call 2")
SUSPECTED = HackFlag(kind="fallback", source=FlagSource.SCREEN, evidence="line 2")


def _measurement(**changes: Any) -> Measurement:
    fields = {
        "baseline": Baseline.EAGER,
        "speedup": 1.4,
        "certified": 1.3,
        "alpha": 0.01,
        "num_quads": 9,
        "bucket_medians": (1.4,) * 7,
        "bucket_variance": 0.0,
        "is_stable": True,
        "reference_us": 14.0,
        "candidate_us": 10.0,
    }
    return Measurement.model_validate({**fields, **changes})


def _verdict(status: Status, **changes: Any) -> Verdict:
    fields = {
        "problem_id": "p",
        "candidate_id": "c",
        "protocol_id": "q",
        "device_kind": "cpu",
        "device_id": "d",
        "status": status,
        "judged_at": "2026-01-01T00:00:00+00:00",
        "judge_s": 1.0,
        "reason": None if status is Status.CORRECT else "why",
    }
    return Verdict.model_validate({**fields, **changes})


@pytest.mark.parametrize("status", list(Status))
def test_only_a_correct_candidate_is_successful(status: Status) -> None:
    flags = (SEEN,) if status is Status.HACKED else ()
    assert _verdict(status, flags=flags).is_successful == (status is Status.CORRECT)


@pytest.mark.parametrize("status", sorted(set(Status) - {Status.CORRECT, Status.HACKED}))
def test_a_failure_has_no_measurement(status: Status) -> None:
    with pytest.raises(ValidationError, match="with a measurement"):
        _verdict(status, measurement=_measurement())


def test_a_failure_has_a_reason_and_a_success_has_none() -> None:
    with pytest.raises(ValidationError, match="with reason"):
        _verdict(Status.CRASHED, reason=None)
    with pytest.raises(ValidationError, match="with reason"):
        _verdict(Status.CORRECT, reason="fine")


def test_suspicion_alone_makes_no_cheat() -> None:
    with pytest.raises(ValidationError, match="without a deciding flag"):
        _verdict(Status.HACKED, flags=(SUSPECTED,))
    with pytest.raises(ValidationError, match="without a deciding flag"):
        _verdict(Status.HACKED)


def test_a_candidate_with_a_deciding_flag_is_not_correct() -> None:
    with pytest.raises(ValidationError, match="with a deciding flag"):
        _verdict(Status.CORRECT, flags=(SEEN,))
    assert _verdict(Status.CORRECT, flags=(SUSPECTED,)).is_successful


def test_the_speedup_is_the_certified_one() -> None:
    assert _verdict(Status.CORRECT, measurement=_measurement()).speedup == 1.3
    assert _verdict(Status.CORRECT).speedup is None


@pytest.mark.parametrize(
    "changes", [{"is_stable": False, "alpha": None}, {"is_confirmed": False}], ids=str
)
def test_a_contradicted_measurement_or_an_unstable_one_without_a_bound_gives_no_gain(
    changes: dict[str, Any],
) -> None:
    with pytest.raises(ValidationError, match="without an agreeing, stable measurement"):
        _measurement(**changes)
    assert _measurement(certified=1.0, **changes).certified == 1.0


def test_a_bound_holds_whether_or_not_the_measurement_is_stable() -> None:
    assert _measurement(is_stable=False).certified == 1.3


def test_a_confirming_device_needs_a_confirmation() -> None:
    with pytest.raises(ValidationError, match="without an answer"):
        _measurement(confirmed_on="GPU-1")
    assert _measurement(confirmed_on="GPU-1", is_confirmed=True).confirmed_on == "GPU-1"


@pytest.mark.parametrize(
    ("candidate_us", "floor_us", "light", "at_roofline"),
    [
        (10.0, 5.0, 0.5, False),
        (10.0, 9.5, 0.95, True),
        (10.0, 20.0, 2.0, True),
        (-1.0, 5.0, math.inf, True),
        (10.0, None, None, False),
    ],
)
def test_the_speed_of_light_is_the_floor_s_share_of_the_time(
    candidate_us: float, floor_us: float | None, light: float | None, at_roofline: bool
) -> None:
    measurement = _measurement(candidate_us=candidate_us, floor_us=floor_us)
    assert measurement.speed_of_light == light
    assert measurement.is_at_roofline is at_roofline


def test_a_verdict_survives_json() -> None:
    verdict = _verdict(Status.CORRECT, measurement=_measurement(), flags=(SUSPECTED,))
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict


def test_only_a_property_observed_as_missing_restricts() -> None:
    assert Properties().restrictions == ()
    there, missing = (
        Properties.model_validate(dict.fromkeys(Properties.model_fields, value))
        for value in (True, False)
    )
    assert there.restrictions == ()
    assert len(missing.restrictions) == len(RESTRICTING)
    assert set(missing.restrictions) < set(missing.in_words)
