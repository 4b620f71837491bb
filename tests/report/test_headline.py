# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

import math

import pytest

from cudal1.report.headline import headlines, numbers


def test_numbers_that_do_not_exist_yet_are_absent(empty):
    assert numbers(empty) == {
        "num_problems": 0,
        "num_null_tests": 0,
        "num_verdicts": 0,
        "num_hacked": 0,
    }


def test_the_numbers_are_finite(realistic):
    assert all(math.isfinite(value) for value in numbers(realistic).values())


def test_both_conventions_are_reported(made):
    given = made.build(
        {
            "problems": [made.problem(1), made.problem(2)],
            "verdicts": [made.verdict("p11", "c", 3.0)],
        }
    )
    found = numbers(given)
    assert found["mean_speedup_failed_as_1"] == pytest.approx(2.0)
    assert found["mean_speedup_failed_as_0"] == pytest.approx(1.5)


def test_the_mean_speedup_is_that_of_the_second_measurement(made):
    rows = {
        "problems": [made.problem(1), made.problem(2), made.problem(3)],
        "verdicts": [made.verdict("p11", "c", 3.0), made.verdict("p12", "d", 2.0)],
    }
    again = [
        {
            "problem_id": problem,
            "candidate_id": candidate,
            "device_kind": kind,
            "status": status,
            "speedup": certified,
            "certified": certified,
            "is_null_test": is_null_test,
        }
        for problem, candidate, kind, status, certified, is_null_test in (
            ("p11", "c", "cpu", "correct", 1.5, False),
            ("p11", "c", "other", "correct", 9.0, False),
            ("p12", "d", "cpu", "incorrect", None, False),
            ("p12", "null", "cpu", "correct", 1.0, True),
        )
    ]
    first = made.build(rows)
    assert "mean_again_failed_as_1" not in numbers(first)
    assert "not measured again" in headlines(first)[0].note
    given = made.build({**rows, "transferred": again})
    assert numbers(given)["mean_again_failed_as_1"] == pytest.approx((1.5 + 1 + 1) / 3)
    mean, faster = headlines(given)[:2]
    assert (mean.label, mean.value) == ("Mean speedup", "1.17×")
    assert "2.00×" in mean.note
    assert faster.value == "1 of 3"


def test_held_out_success_is_given_for_every_policy(realistic):
    found = numbers(realistic)
    for name in ("base", "sft", "selfsup_r1", "selfsup_r2", "rl"):
        assert 0 <= found[f"heldout_success_{name}"] <= 1


def test_a_reference_that_fails_its_own_test_is_in_the_headline(made):
    given = made.build(
        {
            "null_test": [
                {"problem_id": "a", "status": "correct", "speedup": 1.0, "certified": 1.0},
                {"problem_id": "b", "status": "crashed", "speedup": None, "certified": None},
            ]
        }
    )
    (tile,) = [tile for tile in headlines(given) if tile.label == "Null test"]
    assert "1 not correct" in tile.note


def test_a_single_policy_has_no_progress(made):
    given = made.build(
        {
            "problems": [made.problem(split="heldout")],
            "completions": [made.answer("p11", None, stage="policy", provider="policy")],
        }
    )
    (tile,) = [tile for tile in headlines(given) if tile.label == "Held-out success"]
    assert tile.value == "0 %"
