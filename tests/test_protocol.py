"""Tests that a protocol's fingerprint changes with every field that decides a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from cudal1 import protocol
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass, Rule

FIELDS: dict[str, Any] = {
    "correctness_stages": (3, 16),
    "contract": Contract.KERNELBENCH,
    "mode": Mode.CONSTRUCTED,
    "precision": PrecisionClass.STRICT,
    "timing": True,
    "rule": Rule.CERTIFIED,
    "window_s": None,
    "burst_us": 3000.0,
    "max_burst_calls": 24,
    "ring_bytes": 1 << 20,
    "min_quads": 9,
    "max_quads": 24,
    "alpha": 0.01,
    "certify_within": 0.1,
    "max_claim": 50.0,
    "dead_zone": 1.02,
    "num_buckets": 7,
    "max_bucket_variance": 0.005,
    "confirm_above": 3.0,
    "confirm_below": 1.0,
    "give_up_alpha": 0.1,
    "confirm_above_record": 2.0,
    "confirm_within": 0.1,
    "slow_factor": 1000.0,
    "start_timeout_s": 20.0,
    "build_timeout_s": 60.0,
    "call_timeout_s": 2.0,
    "memory_bytes": 1 << 30,
    "seed": 7,
    "unsafe": False,
}
OTHER: dict[str, dict[str, Any]] = {
    "correctness_stages": {"correctness_stages": (3, 17)},
    "timing": {"timing": False},
    "precision": {"precision": PrecisionClass.TF32},
    "alpha": {"alpha": 0.02},
    "contract": {"contract": Contract.DROP_IN},
    "mode": {"mode": Mode.EVAL},
    "give_up_alpha": {"give_up_alpha": 0.2},
    "rule": {"rule": Rule.PAPER, "window_s": 1.0},
    "window_s": {"window_s": 3.0},
    "confirm_within": {"confirm_within": 0.2},
}


def _protocol(**changes: Any) -> EvalProtocol:
    return EvalProtocol.model_validate({**FIELDS, **changes})


def test_these_tests_know_every_field() -> None:
    assert set(FIELDS) == set(EvalProtocol.model_fields)


def test_equal_values_give_equal_fingerprints() -> None:
    assert _protocol().id == _protocol().id


@pytest.mark.parametrize("name", FIELDS)
def test_a_fingerprint_changes_with_every_deciding_field(name: str) -> None:
    start = {"rule": Rule.PAPER, "window_s": 2.0} if name == "window_s" else {}
    changed = OTHER[name] if name in OTHER else {name: FIELDS[name] + 1}
    assert _protocol(**{**start, **changed}).id != _protocol(**start).id


def test_a_fingerprint_changes_with_the_harness_s_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _protocol().id
    monkeypatch.setattr(protocol, "HARNESS_VERSION", "0")
    assert _protocol().id != before


def test_a_protocol_for_checks_only_is_another_protocol() -> None:
    checks = _protocol().checks_only()
    assert checks.id != _protocol().id
    assert checks == _protocol(timing=False) == checks.checks_only()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"correctness_stages": (16, 3)}, "correctness_stages must rise"),
        ({"correctness_stages": (3, 3)}, "correctness_stages must rise"),
        ({"max_claim": 1.01}, "max_claim 1.01 is below dead_zone 1.02"),
        ({"min_quads": 30}, "max_quads 24 is below min_quads 30"),
        ({"rule": Rule.PAPER}, "rule paper with window_s None"),
        ({"window_s": 5.0}, "rule certified with window_s 5.0"),
        ({"build_timeout_s": 10.0}, r"build_timeout_s 10.0 is below start_timeout_s 20.0"),
    ],
)
def test_a_protocol_that_contradicts_itself_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        _protocol(**changes)


@pytest.mark.parametrize("name", FIELDS)
def test_the_documentation_explains_every_field(name: str) -> None:
    page = Path(__file__).parent.parent / "docs" / "protocol.md"
    assert f"`{name}`" in page.read_text(encoding="utf-8")
