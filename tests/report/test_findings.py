"""Tests of the five sentences: what they compare, regressions, choices, and what is missing."""

# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

import json
from html import unescape

import pytest

from cudal1.report.findings import findings
from cudal1.report.headline import headlines
from cudal1.report.page import page_html
from cudal1.report.policies import before, best_policy, examined
from cudal1.report.publish import publish
from cudal1.report.summary import summary_markdown
from cudal1.report.tables.table import markdown_text

NUM_PROBLEMS = 12


@pytest.fixture
def policies(made):
    """Return a function that builds the input of policies with one reward each, by stage.

    A reward is certified for each of the held-out problems, which differ by far more.
    """

    def build(rewards, **changes):
        rows = {"problems": [], "completions": [], "verdicts": []}
        for number in range(1, NUM_PROBLEMS + 1):
            rows["problems"].append(made.problem(number, split="heldout"))
            for stage, reward in rewards.items():
                problem, candidate = f"p1{number}", f"{stage}-{number}"
                rows["completions"].append(
                    made.answer(problem, candidate, stage=stage, provider="policy")
                )
                rows["verdicts"].append(made.verdict(problem, candidate, number + reward))
        return made.build(rows, **changes)

    return build


@pytest.fixture
def swinging(made):
    """Return a function that builds two policies: one earns 2 always, the other 1 or more."""

    def build(more):
        rows = {"problems": [], "completions": [], "verdicts": []}
        for number in range(1, 9):
            rows["problems"].append(made.problem(number, split="heldout"))
            for stage, reward in (("policy", 2.0), ("sft", 1.0 if number % 2 else more)):
                problem, candidate = f"p1{number}", f"{stage}-{number}"
                rows["completions"].append(
                    made.answer(problem, candidate, stage=stage, provider="policy")
                )
                rows["verdicts"].append(made.verdict(problem, candidate, reward))
        return made.build(rows)

    return build


def test_there_are_five_sentences_whatever_there_is(empty, realistic):
    for given in (empty, realistic):
        assert len(findings(given)) == 5
        assert all(said.endswith(".") and "\n" not in said for said in findings(given))


def test_a_regression_is_a_finding(policies):
    given = policies({"policy": 0.0, "sft": 0.5, "selfsup@r1": 0.75, "rl": 0.5})
    said = findings(given)[2]
    assert "sft is better than the untrained policy by 0.50 (0.50 to 0.50)" in said
    assert "selfsup r1 is better than sft by 0.25" in said
    assert "contrastive RL is worse than selfsup r1 by 0.25 (0.25 to 0.25)" in said


def test_the_last_policy_is_compared_with_stage_1_s_whatever_it_started_from(policies):
    given = policies({"policy": 0.0, "sft": 0.25, "selfsup@r1": 0.5, "rl": 0.75})
    said = findings(given)[2]
    assert "contrastive RL is better than selfsup r1 by 0.25" in said
    assert "contrastive RL is better than sft by 0.50 (0.50 to 0.50)" in said


def test_the_best_policy_is_named_though_it_is_not_the_last(policies):
    given = policies({"policy": 0.0, "sft": 0.5, "selfsup@r1": 0.75, "rl": 0.5})
    best = best_policy(given)
    assert best is not None
    assert best.label == "selfsup r1"
    said = findings(given)[1]
    assert "is selfsup r1: mean reward 7.25" in said
    assert "where the untrained policy has 6.50" in said
    assert "; contrastive RL, the last, has 7.00" in said
    assert "luck" not in said
    (tile,) = [tile for tile in headlines(given) if tile.label == "Held-out success"]
    assert "from base to selfsup r1, the best by mean reward; rl, the last: 100 %" in tile.note


def test_the_last_policy_is_compared_with_the_best_too(policies):
    given = policies({"policy": 0.0, "sft": 0.75, "selfsup@r1": 0.5, "rl": 0.25})
    assert "contrastive RL is worse than sft by 0.50" in findings(given)[2]


def test_the_later_one_of_equal_policies_is_the_best(policies):
    best = best_policy(policies({"policy": 0.5, "sft": 0.5}))
    assert best is not None
    assert best.stage == "sft"


def test_none_is_the_best_where_no_policy_solved_anything(policies, made):
    rows = {
        "problems": [made.problem(1, split="heldout"), made.problem(2, split="heldout")],
        "completions": [
            made.answer(f"p1{number}", f"{stage}-{number}", stage=stage, provider="policy")
            for stage in ("policy", "sft", "rl")
            for number in (1, 2)
        ],
        "verdicts": [],
    }
    said = findings(made.build(rows))
    assert said[1] == (
        "No policy solved anything with 2 answers to 2 held-out problems, so none is the best."
    )
    assert said[2].endswith(
        ": no answer's reward differs between sft and the untrained policy, or between "
        "contrastive RL and sft."
    )
    assert "+0.00" not in said[2]


def test_a_best_that_may_be_luck_is_said(swinging):
    assert "has 2.00 and 100 %, which may be luck" in findings(swinging(3.2))[1]


def test_luck_is_named_only_where_a_mean_fell(made):
    rows = {
        "problems": [made.problem(1)],
        "verdicts": [made.verdict("p11", "c", 1.5)],
        "transferred": [
            {
                "problem_id": "p11",
                "candidate_id": "c",
                "device_kind": made.device,
                "status": "correct",
                "speedup": 2.0,
                "certified": 2.0,
                "is_null_test": False,
            }
        ],
    }
    said = findings(made.build(rows))[0]
    assert "the mean was 1.50×;" in said
    (mean, *_) = headlines(made.build(rows))
    assert mean.note.endswith("when chosen: 1.50×")


def test_a_training_without_success_is_said(policies):
    assert "no training improved on it" in findings(policies({"policy": 0.5, "sft": 0.25}))[1]


def test_policies_are_not_told_apart_where_the_interval_holds_zero(swinging):
    said = "no difference is shown between sft and the untrained policy (+0.00, -"
    assert said in findings(swinging(3.0))[2]


def test_a_stage_is_compared_with_what_it_was_trained_from(policies):
    params = {"rl.init": "sft", "selfsup.rounds.r1.init": "sft"}
    given = policies({"policy": 0.0, "sft": 0.5, "selfsup@r1": 0.75, "rl": 0.25}, params=params)
    earlier = [before(given, policy) for policy in examined(given)]
    assert [None if each is None else each.label for each in earlier] == [
        None,
        "base",
        "sft",
        "sft",
    ]
    assert "contrastive RL is worse than sft by 0.25" in findings(given)[2]


def test_rows_of_the_ablation_are_no_policies_of_the_pipeline(policies):
    given = policies({"policy": 0.0, "ablation@plain": 0.5})
    assert [policy.label for policy in examined(given)] == ["base"]


def test_the_gain_is_that_of_second_measurements(made):
    rows = {
        "problems": [made.problem(1), made.problem(2)],
        "verdicts": [made.verdict("p11", "c", 3.0), made.verdict("p12", "d", 2.0)],
    }
    assert "no second measurement says how much of it lasts" in findings(made.build(rows))[0]
    rows["transferred"] = [
        {
            "problem_id": f"p1{number}",
            "candidate_id": candidate,
            "device_kind": made.device,
            "status": "correct",
            "speedup": again,
            "certified": again,
            "is_null_test": False,
        }
        for number, candidate, again in ((1, "c", 1.5), (2, "d", 1.0))
    ]
    said = findings(made.build(rows))[0]
    assert "a mean speedup of 1.25× (1.00 to 1.50)" in said
    assert "1.25× in the middle, and 1 of them are faster than 1.01×" in said
    assert "when they were chosen the mean was 2.50×, partly by luck" in said


def test_a_null_test_that_gains_is_said(made):
    null = {"status": "correct", "speedup": 1.2, "certified": 1.1}
    given = made.build({"null_test": [{"problem_id": "a", **null}]})
    assert "Null test: 1 of 1 reference, judged as candidates, gained" in findings(given)[4]


def test_page_summary_and_file_have_the_same_sentences(realistic, tmp_path):
    publish(realistic, tmp_path)
    kept = json.loads((tmp_path / "findings.json").read_text("utf-8"))["findings"]
    assert tuple(kept) == findings(realistic)
    page, summary = unescape(page_html(realistic)), summary_markdown(realistic)
    for said in kept:
        assert said in page
        assert markdown_text(said) in summary
    assert page.index(kept[0]) < page.index('class="tile"')
