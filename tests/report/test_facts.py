from __future__ import annotations

import polars as pl
import pytest

from cudal1.protocol import Rule
from cudal1.report import facts


def test_the_best_candidate_has_the_highest_certified_speedup(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "slow", 1.1), made.verdict("p11", "fast", 2.0)],
        }
    )
    assert facts.best(given).row(0, named=True)["candidate_id"] == "fast"


def test_a_hacked_candidate_is_never_the_best(made):
    given = made.build(
        {"problems": [made.problem()], "verdicts": [made.verdict("p11", "cheat", status="hacked")]}
    )
    assert facts.best(given)["certified"].to_list() == [None]


@pytest.mark.parametrize("other", [{"protocol_id": "another"}, {"device_kind": "another"}])
def test_verdicts_of_another_protocol_or_device_do_not_count(made, other):
    given = made.build(
        {"problems": [made.problem()], "verdicts": [made.verdict("p11", "c", 9.0, **other)]}
    )
    assert facts.best(given)["certified"].to_list() == [None]


def test_a_rejected_problem_does_not_count(made):
    given = made.build({"problems": [made.problem(1), made.problem(2, admitted=False)]})
    assert facts.best(given).height == 1


def test_an_answer_without_source_has_no_reward_and_that_outcome(made):
    given = made.build({"problems": [made.problem()], "completions": [made.answer("p11", None)]})
    row = facts.answers(given).row(0, named=True)
    assert (row["outcome"], row["reward"]) == (facts.NO_SOURCE, 0.0)


def test_a_candidate_without_verdict_is_not_judged(made):
    given = made.build({"problems": [made.problem()], "completions": [made.answer("p11", "c")]})
    assert facts.answers(given)["outcome"].to_list() == [facts.NOT_JUDGED]


def test_an_untimed_candidate_is_correct_without_a_reward(made):
    checks = made.build({}).provenance.protocol.checks_only().id
    given = made.build(
        {
            "problems": [made.problem()],
            "completions": [made.answer("p11", "c")],
            "verdicts": [made.verdict("p11", "c", None, protocol_id=checks)],
        }
    )
    row = facts.answers(given).row(0, named=True)
    assert (row["outcome"], row["reward"]) == ("correct", None)


def test_a_timed_verdict_takes_precedence_over_a_check(made):
    checks = made.build({}).provenance.protocol.checks_only().id
    given = made.build(
        {
            "problems": [made.problem()],
            "completions": [made.answer("p11", "c")],
            "verdicts": [
                made.verdict("p11", "c", None, protocol_id=checks),
                made.verdict("p11", "c", 1.5),
            ],
        }
    )
    assert facts.answers(given)["reward"].to_list() == [1.5]


def test_every_provider_of_the_best_source_is_its_author(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "c")],
            "completions": [
                made.answer("p11", "c", stage="rl", provider="policy"),
                made.answer("p11", "c"),
            ],
        }
    )
    assert facts.best(given).row(0, named=True)["authors"] == ["fuser", "rl"]


def test_a_method_is_the_author_of_an_answer_that_another_requested(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "c")],
            "completions": [made.answer("p11", "c", stage="search@evolve", provider="vanilla")],
        }
    )
    assert facts.answers(given)["author"].to_list() == ["search evolve"]


def test_stages_come_in_the_order_in_which_they_run(realistic):
    assert facts.stages(facts.answers(realistic)) == [
        "policy",
        "generate@fuser",
        "generate@novice",
        "generate@replay",
        "sft",
        "selfsup@r1",
        "selfsup@r2",
        "rl",
        "search@evolve",
        "search@vanilla",
    ]


def test_the_interval_of_a_share_is_wilsons():
    # 5 of 10: the textbook interval
    assert facts.wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert facts.wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("rule", "spread"), [(Rule.CERTIFIED, 0.1), (Rule.PAPER, 0.4)])
def test_a_spread_has_the_scale_of_the_gate(made, rule, spread):
    protocol = made.build({}).provenance.protocol.model_copy(update={"rule": rule})
    measured = pl.DataFrame({"bucket_variance": [0.16], "speedup": [4.0]})
    assert measured.select(facts.spread(protocol)).item() == pytest.approx(spread)
