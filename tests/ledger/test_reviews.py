"""Tests of opinions, rulings and cases: which one holds, and its effect on verdicts."""

from __future__ import annotations

import shutil

import pytest

from cudal1.billing import TryOutcome
from cudal1.hack_case import CaseOrigin
from cudal1.ledger import Ledger
from cudal1.verdict import FlagSource


@pytest.fixture
def suspect(facts):
    return facts.candidate("class ModelNew: x = 1")


def test_a_veto_is_a_flag_of_the_reviewer(ledger, facts, suspect):
    ledger.add_review(facts.review(suspect))
    flag = ledger.veto(suspect)
    assert (flag.kind, flag.source) == ("cached_output", FlagSource.REVIEWER)


@pytest.mark.parametrize("is_cheat", [False, None])
def test_an_opinion_without_a_veto_leaves_the_verdict_unchanged(ledger, facts, suspect, is_cheat):
    ledger.add_review(facts.review(suspect, is_cheat=is_cheat))
    assert ledger.veto(suspect) is None


def test_a_reviewer_that_lets_a_candidate_pass_is_remembered_by_its_words(ledger, facts, suspect):
    assert ledger.remark(suspect) is None
    passed = facts.review(suspect, is_cheat=False)
    ledger.add_review(passed)
    assert ledger.remark(suspect) == passed.opinion.evidence


def test_a_veto_is_no_remark(ledger, facts, suspect):
    ledger.add_review(facts.review(suspect))
    assert ledger.remark(suspect) is None


def test_a_person_can_lift_a_veto(ledger, facts, suspect):
    ledger.add_review(facts.review(suspect))
    ledger.add_ruling(facts.ruling(suspect, is_cheat=False))
    assert ledger.veto(suspect) is None


def test_a_person_s_ruling_overrides_the_reviewer_s_opinion(ledger, facts, suspect):
    ledger.add_review(facts.review(suspect, is_cheat=False))
    ledger.add_ruling(facts.ruling(suspect))
    assert ledger.veto(suspect).source is FlagSource.PERSON


def test_the_latest_ruling_holds(ledger, facts, suspect):
    ledger.add_ruling(facts.ruling(suspect, at="2026-01-02T00:00:00Z"))
    ledger.add_ruling(facts.ruling(suspect, is_cheat=False, at="2026-01-01T00:00:00Z"))
    assert ledger.veto(suspect) is not None
    ledger.add_ruling(facts.ruling(suspect, is_cheat=False, at="2026-01-03T00:00:00Z"))
    assert ledger.veto(suspect) is None


@pytest.mark.slow
def test_a_review_comes_back_unchanged(ledger, facts, suspect):
    review = facts.review(suspect)
    ledger.add_review(review)
    assert ledger.reviews(suspect, reviewer_id="reviewer") == [review]
    assert ledger.reviews(suspect, reviewer_id="another") == []


def test_a_parsed_answer_replaces_the_raw_one(ledger, facts, suspect):
    ledger.add_review(facts.review(suspect, is_cheat=None))
    ledger.add_review(facts.review(suspect))
    (review,) = ledger.reviews(suspect, reviewer_id="reviewer")
    assert review.opinion is not None


def test_a_shipped_case_comes_back_unchanged(ledger, facts):
    assert facts.case in ledger.cases()


def test_a_confirmed_veto_is_a_case_until_the_person_dismisses_it(ledger, facts, suspect):
    ledger.add_candidate(suspect)
    ledger.add_ruling(facts.ruling(suspect))
    (case,) = [each for each in ledger.cases() if each.id == suspect.id]
    assert (case.origin, case.source) == (CaseOrigin.CONFIRMED, suspect.source)
    ledger.add_ruling(facts.ruling(suspect, is_cheat=False, at="2026-01-02T00:00:00Z"))
    assert suspect.id not in [each.id for each in ledger.cases()]


@pytest.mark.parametrize("is_cheat", [True, False])
def test_a_ruling_holds_for_the_same_code_under_another_name(ledger, facts, suspect, is_cheat):
    twin = facts.candidate("class ModelNew: x = 1  # again")
    ledger.add_review(facts.review(twin, is_cheat=not is_cheat, code="the same"))
    ledger.add_ruling(facts.ruling(suspect, is_cheat=is_cheat, code="the same"))
    assert (ledger.veto(twin) is not None) == is_cheat


def test_a_ruling_on_a_candidate_overrides_one_on_the_same_code(ledger, facts, suspect):
    twin = facts.candidate("class ModelNew: x = 1  # again")
    ledger.add_review(facts.review(twin, code="the same"))
    ledger.add_ruling(facts.ruling(twin, is_cheat=False, code="the same"))
    ledger.add_ruling(facts.ruling(suspect, at="2026-01-02T00:00:00Z", code="the same"))
    assert ledger.veto(twin) is None


def test_any_reviewers_veto_on_the_code_comes_before_this_reviewers_opinion(ledger, facts, suspect):
    twin = facts.candidate("class ModelNew: x = 1  # again")
    ledger.add_review(facts.review(suspect, is_cheat=False, code="the same"))
    assert ledger.opinion_on("the same", reviewer_id="another") is None
    assert ledger.opinion_on("the same", reviewer_id="reviewer").candidate_id == suspect.id
    ledger.add_review(facts.review(twin, code="the same"))
    assert ledger.opinion_on("the same", reviewer_id="another").candidate_id == twin.id


@pytest.mark.slow
def test_review_and_ruling_are_in_the_shard_of_the_stage_that_asks_for_the_veto(
    ledger, facts, suspect, tmp_path
):
    ledger.add_review(facts.review(suspect))
    ledger.add_ruling(facts.ruling(suspect))
    ledger.export()
    ledger.close()
    with Ledger.open(tmp_path) as later:
        later.begin("filter", run="again")
        facts.known(later, suspect)
        later.veto(suspect)
        later.export()
    shutil.rmtree(tmp_path / "unclaimed")
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as rebuilt:
        assert rebuilt.veto(suspect).source is FlagSource.PERSON
        assert len(rebuilt.reviews(suspect, reviewer_id="reviewer")) == 1


@pytest.mark.slow
def test_the_shard_of_rulings_holds_their_candidates(ledger, facts, suspect, tmp_path):
    ledger.export()
    ledger.close()
    with Ledger.open(tmp_path) as ruled:
        ruled.begin_rulings()
        ruled.add_ruling(facts.ruling(suspect))
        ruled.export()
    for name in ("unclaimed", "shards/filter"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as rebuilt:
        assert suspect.source in [case.source for case in rebuilt.cases()]


def test_a_finished_try_stays_finished(ledger, facts):
    refused = facts.tries()[0]
    ledger.add_try(refused.model_copy(update={"outcome": TryOutcome.SENT, "said": None}))
    found = ledger.sql("select outcome from tries where request_id = 'c' order by sent_at")
    assert found["outcome"].to_list() == ["refused", "answered"]


@pytest.mark.slow
def test_tries_reviews_rulings_and_cases_outlive_the_database(ledger, facts, tmp_path):
    tables = ("tries", "reviews", "rulings", "hack_cases")
    before = {table: ledger.sql(f"from {table} order by all").rows() for table in tables}
    assert all(before.values())
    ledger.export()
    ledger.close()
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as again:
        assert {t: again.sql(f"from {t} order by all").rows() for t in tables} == before


@pytest.mark.slow
def test_a_bill_outlives_the_stage_s_next_run(ledger, facts, tmp_path):
    ledger.export()
    ledger.close()
    with Ledger.open(tmp_path) as again:
        again.begin("filter", run="another")
        again.export()
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as rebuilt:
        assert rebuilt.query("spent", provider="openai").item(0, "cost_usd") == 0.75


@pytest.mark.slow
def test_threads_take_turns(ledger, facts):
    from concurrent.futures import ThreadPoolExecutor

    def add(i: int) -> None:
        ledger.add_completion(facts.completion(f"t{i}"), None, "none")
        assert ledger.completion(f"t{i}") is not None

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(add, range(200)))
    assert ledger.sql("from completions where starts_with(completion_id, 't')").height == 200
