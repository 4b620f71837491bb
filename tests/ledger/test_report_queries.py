"""Tests of the report's queries on the candidates that it shows."""

from __future__ import annotations

import pytest

from cudal1.baseline import Baseline
from cudal1.ledger import Ledger
from cudal1.problem import Admission
from cudal1.verdict import Properties


@pytest.fixture
def ledger(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        yield ledger


@pytest.fixture
def ids(facts) -> list[str]:
    """Return three candidates' ids; each prompt but the first shows all earlier candidates."""
    return [facts.candidate(f"class ModelNew: x = {i}").id for i in range(3)]


@pytest.fixture
def where(facts) -> dict[str, str]:
    return {"device_kind": facts.device_kind, "protocol_id": facts.protocol.id}


def test_sources_are_given_for_the_requested_candidates_only(ledger, ids):
    found = ledger.query("sources", candidate_ids=ids[:1])
    assert found["source"].to_list() == ["class ModelNew: x = 0"]
    assert ledger.query("sources", candidate_ids=[]).is_empty()


def test_samples_are_given_for_the_requested_candidates_only(ledger, ids, where):
    found = ledger.query("shown_samples", candidate_ids=ids[:2], **where)
    assert sorted(found["candidate_id"].unique()) == sorted(ids[:2])
    assert found.height == 16
    elsewhere = where | {"device_kind": "NVIDIA H200"}
    assert ledger.query("shown_samples", candidate_ids=ids, **elsewhere).is_empty()


def test_details_are_the_verdicts_own_values(ledger, ids, where):
    found = ledger.query("shown_details", candidate_ids=ids[:1], **where)
    assert found["bucket_medians"].to_list() == [[1.1] * 7]
    assert found["num_inputs"].to_list() == [2]


def test_ancestors_are_counted_by_the_shortest_way(ledger, ids, where):
    first, second, third = ids
    found = ledger.query("ancestors", candidate_ids=[third, second], generations=6, **where)
    kinship = found.select("descendant_id", "candidate_id", "generation").rows()
    assert sorted(kinship) == sorted([(third, second, 1), (third, first, 1), (second, first, 1)])
    assert dict(found.select("candidate_id", "certified").iter_rows()) == {first: 1.1, second: 1.5}


def test_descent_is_followed_to_the_requested_depth_only(ledger, facts, ids, where):
    fourth = facts.candidate("class ModelNew: x = 4")
    ledger.add_completion(facts.completion("f", shown=(ids[1],)), fourth, None)
    near = ledger.query("ancestors", candidate_ids=[fourth.id], generations=1, **where)
    far = ledger.query("ancestors", candidate_ids=[fourth.id], generations=2, **where)
    assert near["candidate_id"].to_list() == [ids[1]]
    assert far["candidate_id"].to_list() == [ids[1], ids[0]]


def test_a_candidate_that_was_shown_itself_ends_the_descent(ledger, facts, ids, where):
    ledger.add_completion(
        facts.completion("g", shown=(ids[0],)), facts.candidate("class ModelNew: x = 0"), None
    )
    assert ledger.query("ancestors", candidate_ids=ids[:1], generations=6, **where).is_empty()


def test_answers_come_without_their_text(ledger):
    found = ledger.query("answers", stages=["filter", "rl"])
    assert not {"answer", "reasoning", "response"} & set(found.columns)


@pytest.mark.slow
def test_a_verdict_used_by_several_stages_comes_once(ledger, facts, tmp_path):
    ledger.export()
    ledger.close()
    with Ledger.open(tmp_path) as again:
        again.begin("rl")
        for i in range(3):
            facts.known(again, facts.candidate(f"class ModelNew: x = {i}"))
        again.export()
        both = again.query("latest_verdicts", stages=["filter", "rl"])
        assert both.height == both["candidate_id"].n_unique() == 4
        assert again.query("latest_verdicts", stages=["rl"]).height == 3
        assert again.query("latest_verdicts", stages=[]).is_empty()


def test_a_verdict_comes_with_its_speedup_over_each_baseline(ledger, facts, ids):
    asked = {"stages": ["filter"]}
    assert ledger.query("latest_verdicts", **asked)["over_baselines"].null_count() == 4
    compiled = facts.candidate("class ModelNew: compiled")
    ledger.add_baseline(compiled, Baseline.COMPILE)
    verdict = facts.correct(compiled, 1.2)
    ledger.add_verdict(verdict, [])
    found = ledger.query("latest_verdicts", **asked)
    held = dict(found.select("candidate_id", "over_baselines").iter_rows())
    assert held[ids[2]] == [
        {"baseline": "compile", "certified_over": 2.0 / verdict.measurement.at_most}
    ]
    assert held[compiled.id] is None
    assert found.height == 5


def test_a_verdict_comes_with_its_candidates_properties(ledger, facts):
    candidate = facts.candidate("class ModelNew: seen")
    seen = Properties(follows_weights=False, fresh_outputs=True, needs_compiler=True)
    ledger.add_verdict(facts.correct(candidate, 1.3, seen), [])
    row = ledger.query("latest_verdicts", stages=["filter"]).filter(candidate_id=candidate.id)
    assert row.select(*Properties.model_fields).to_dicts() == [seen.model_dump()]


def test_a_problem_comes_with_the_invariants_of_its_inputs(tmp_path, facts):
    problem, told = facts.problem(), ("input 0: lower triangular",)
    admission = Admission(problem_id=problem.id, admitted=True, invariants=told)
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("problems")
        ledger.add_problem(problem, admission)
        assert ledger.query("problems")["invariants"].to_list() == [list(told)]
