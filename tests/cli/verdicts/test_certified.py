"""Tests of the sentence on a speedup: estimate, bounds, certified value, reason for less."""

from __future__ import annotations

from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.cli.verdicts.certified import GATES, QUIET, sentence, why_not_more
from cudal1.measurement import Doubt, Measurement
from cudal1.settings import protocols

PROTOCOL = protocols.load("cpu")


def measured(**changes: Any) -> Measurement:
    fields: dict[str, Any] = {
        "baseline": Baseline.EAGER,
        "speedup": 2.05,
        "certified": 1.93,
        "alpha": 0.01,
        "lower": 1.934,
        "upper": 2.16,
        "num_quads": 11,
        "bucket_medians": (1.95, 2.05, 2.1),
        "bucket_variance": 0.0006,
        "is_stable": True,
        "reference_us": 205.0,
        "candidate_us": 100.0,
    }
    return Measurement.model_validate({**fields, **changes})


def test_the_sentence_holds_the_estimate_its_bounds_and_the_certified_speedup() -> None:
    assert sentence(measured(), PROTOCOL) == (
        "estimated 2.050x, at least 1.934x and at most 2.160x, each at 99 % confidence; "
        "certified 1.93x at 99 %"
    )


def test_without_bounds_the_sentence_holds_the_range_of_the_buckets() -> None:
    said = sentence(measured(certified=1.0, lower=None, upper=None, speedup=1.0), PROTOCOL)
    assert "its buckets 1.950x to 2.100x" in said
    assert said.endswith("certified 1.00x at 99 %")


def test_the_paper_s_rule_certifies_nothing() -> None:
    said = sentence(measured(alpha=None, lower=None, upper=None), PROTOCOL)
    assert said == "estimated 2.050x; nothing is certified under this rule"


@pytest.mark.parametrize("doubt", Doubt)
def test_a_failed_gate_is_named_with_its_value_and_a_remedy(doubt: Doubt) -> None:
    said = sentence(measured(certified=1.3, doubt=doubt, believed=1.309), PROTOCOL)
    for part in (GATES[doubt].reason, f"(gate {doubt} leaves 1.309x)", GATES[doubt].remedy):
        assert part in said


def test_a_gate_without_a_value_is_named_too() -> None:
    assert "(gate again)" in sentence(measured(certified=1.0, doubt=Doubt.AGAIN), PROTOCOL)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"certified": 1.0, "lower": 1.03, "speedup": 1.04}, "dead_zone, 1.05x"),
        ({"certified": 100.0, "lower": 250.0, "speedup": 260.0}, "max_claim, 100x"),
        ({"certified": 1.5, "speedup": 1.5}, "the estimate is below the bound"),
        ({"certified": 1.0, "lower": 0.9}, "too unsteady to bound it above 1 in 11 quads"),
        ({"certified": 1.0, "lower": None, "upper": None}, QUIET),
        ({"certified": 1.0, "lower": 0.9, "num_quads": 21}, "more max_quads"),
    ],
)
def test_every_other_reason_for_a_lower_speedup_is_named(
    changes: dict[str, Any], said: str
) -> None:
    assert said in why_not_more(measured(**changes), PROTOCOL)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"certified": 0.4, "speedup": 0.38, "lower": 0.36, "upper": 0.4},
        {"certified": 1.0, "speedup": 1.01, "lower": 0.98, "upper": 1.03},
    ],
)
def test_a_speedup_certified_in_full_needs_no_reason(changes: dict[str, Any]) -> None:
    assert why_not_more(measured(**changes), PROTOCOL) == ""
