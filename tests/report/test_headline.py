# ruff: noqa: RUF001 (× and – are what readers see)
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


def again(*rows):
    """Return second measurements: candidate of problem, device, what was certified or None."""
    return [
        {
            "problem_id": problem,
            "candidate_id": candidate,
            "device_kind": kind,
            "status": "incorrect" if certified is None else "correct",
            "speedup": certified,
            "certified": certified,
            "is_null_test": candidate == "null",
        }
        for problem, candidate, kind, certified in rows
    ]


@pytest.fixture
def chosen(made):
    """Return rows of four problems: two fast winners, one slow winner, one without a success."""
    return {
        "problems": [made.problem(number) for number in range(1, 5)],
        "verdicts": [
            made.verdict("p11", "c", 3.0),
            made.verdict("p11", "slower", 2.9),
            made.verdict("p12", "d", 2.0),
            made.verdict("p13", "e", 1.0),
        ],
    }


def test_the_headline_is_what_winners_had_when_they_were_measured_again(made, chosen):
    second = again(("p11", "c", "cpu", 1.5), ("p12", "d", "cpu", 1.25), ("p13", "e", "cpu", 1.0))
    given = made.build({**chosen, "transferred": second})
    assert numbers(given)["mean_again_failed_as_1"] == pytest.approx((1.5 + 1.25 + 1 + 1) / 4)
    assert numbers(given)["mean_again_failed_as_0"] == pytest.approx((1.5 + 1.25 + 1) / 4)
    mean, faster = headlines(given)[:2]
    assert (mean.label, mean.value) == ("Mean speedup", "1.19×")
    assert "3 of 3 winners" in mean.note
    assert "when chosen, partly by luck: 1.75×" in mean.note
    assert (faster.label, faster.value) == ("Faster than 1.01×", "2 of 4")


def test_a_winner_that_is_incorrect_or_not_measured_again_has_no_gain(made, chosen):
    second = again(("p11", "c", "cpu", 1.5), ("p12", "d", "cpu", None))
    found = numbers(made.build({**chosen, "transferred": second}))
    assert (found["num_again"], found["num_successful_again"]) == (2, 1)
    assert found["mean_again_failed_as_1"] == pytest.approx((1.5 + 1 + 1 + 1) / 4)
    assert found["num_meaningful_again"] == 1


@pytest.mark.parametrize(
    "second",
    [
        pytest.param(again(), id="none"),
        pytest.param(again(("p11", "c", "other", 9.0)), id="another device"),
        pytest.param(again(("p11", "null", "cpu", 1.0)), id="the null test"),
        pytest.param(again(("p11", "slower", "cpu", 2.9)), id="another candidate"),
    ],
)
def test_without_second_measurements_the_headline_has_no_speedup_and_says_so(made, chosen, second):
    given = made.build({**chosen, "transferred": second})
    assert numbers(given)["num_again"] == 0
    for tile, first in zip(headlines(given)[:2], ("1.75×", "2 of 4"), strict=True):
        assert tile.value == "–"
        assert "stage transfer measured none of 3 winners again on cpu" in tile.note
        assert tile.note.endswith(f"when chosen, partly by luck: {first}")


def test_a_run_without_a_correct_candidate_has_nothing_to_measure_again(made):
    tile = headlines(made.build({"problems": [made.problem(1)]}))[0]
    assert (tile.value, tile.note) == ("–", "no problem has a correct candidate")


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
