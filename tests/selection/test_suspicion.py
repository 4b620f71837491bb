"""Tests of the rules that make a success suspicious."""

from __future__ import annotations

from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.measurement import Measurement
from cudal1.selection.suspicion import suspicion
from cudal1.verdict import FlagSource, HackFlag, Status, Verdict

FLAG = HackFlag(kind="odd_import", source=FlagSource.SCREEN, evidence="line 1")


def verdict(certified: float | None, *flags: HackFlag) -> Verdict:
    measured = (
        None
        if certified is None
        else Measurement(
            baseline=Baseline.EAGER,
            speedup=certified,
            certified=certified,
            alpha=0.01,
            num_quads=9,
            bucket_medians=(certified,),
            bucket_variance=0.0,
            is_stable=True,
            reference_us=2.0,
            candidate_us=1.0,
        )
    )
    return Verdict(
        problem_id="p",
        candidate_id="c",
        protocol_id="q",
        device_kind="cpu",
        device_id="0",
        status=Status.CRASHED if certified is None else Status.CORRECT,
        reason="no" if certified is None else None,
        flags=flags,
        measurement=measured,
        judged_at="2026-01-01T00:00:00Z",
        judge_s=0.1,
    )


def why(found: Verdict, record: float | None = None, **changes: Any) -> str | None:
    asked: dict[str, Any] = {
        "above": 3.0,
        "above_record": 1.5,
        "when_screened": True,
        "spot_share": 0.0,
        **changes,
    }
    return suspicion(found, record=record, **asked)


def test_a_failure_is_not_suspicious() -> None:
    assert why(verdict(None)) is None


@pytest.mark.parametrize("certified", [0.5, 1.0, 1.01])
def test_a_success_that_earns_nothing_is_not_suspicious(certified: float) -> None:
    assert why(verdict(certified, FLAG), record=0.1) is None


def test_a_large_gain_is_suspicious() -> None:
    assert why(verdict(3.0)) == "certified 3.00x, at or above 3x"
    assert why(verdict(2.99), record=2.0) is None


def test_a_jump_over_the_record_is_suspicious() -> None:
    assert why(verdict(1.6), record=1.0) == "certified 1.60x, 1.6 times the record"
    assert why(verdict(1.6), record=1.2) is None


def test_a_record_below_one_does_not_count() -> None:
    assert why(verdict(1.2), record=0.1) is None


def test_the_reference_s_own_speed_is_the_first_record() -> None:
    assert why(verdict(2.5), record=None) == "certified 2.50x, 2.5 times the record"
    assert why(verdict(1.4), record=None) is None


def test_a_share_of_all_other_gains_is_drawn_by_their_ids() -> None:
    gains = [verdict(1.1).model_copy(update={"candidate_id": str(i)}) for i in range(1_000)]
    drawn = [why(gain, spot_share=0.05) for gain in gains]
    assert drawn == [why(gain, spot_share=0.05) for gain in gains]
    assert 30 <= sum(each is not None for each in drawn) <= 70


def test_a_gain_with_a_screening_flag_is_suspicious() -> None:
    assert why(verdict(1.1, FLAG)) == "the source shows odd_import"
    assert why(verdict(1.1, FLAG), when_screened=False) is None
