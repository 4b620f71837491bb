"""Tests that each named query answers its question."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cudal1.ledger
from cudal1.candidate import Candidate
from cudal1.ledger import Ledger
from cudal1.problem import Admission
from cudal1.verdict import Properties, SecondOpinion, Status

QUERIES = sorted((Path(cudal1.ledger.__file__).parent / "queries").glob("*.sql"))


@pytest.fixture
def ledger(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        yield ledger


def only(frame, **wanted):
    """Return the one row with these values."""
    found = [row for row in frame.to_dicts() if wanted.items() <= row.items()]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.slow
def test_the_record_is_the_best_certified_speedup_under_the_same_protocol(ledger, facts):
    asked = {"problem_id": facts.problem().id, "device_kind": "cpu", "candidate_id": "new"}
    found = ledger.query("record", **asked, protocol_id=facts.protocol.id)
    assert found["certified"].to_list() == [2.0]
    nobody = ledger.query("record", **asked, protocol_id="another")
    assert nobody["certified"].to_list() == [None]


def test_a_candidate_is_not_compared_with_its_own_record(ledger, facts):
    found = ledger.query(
        "record",
        problem_id=facts.problem().id,
        device_kind="cpu",
        protocol_id=facts.protocol.id,
        candidate_id=facts.candidate("class ModelNew: x = 2").id,
    )
    assert found["certified"].to_list() == [1.5]


@pytest.mark.slow
def test_lessons_are_the_best_candidates_of_the_problems_and_mark_new_ones(ledger, facts):
    def lessons(*problems, since, count):
        return ledger.query(
            "lessons",
            problem_ids=problems,
            since=since,
            count=count,
            device_kind="cpu",
            protocol_id=facts.protocol.id,
        ).to_dicts()

    here = facts.problem().id
    found = lessons(here, since="", count=9)
    assert [row["certified"] for row in found] == [2.0, 1.5, 1.1]
    assert all(row["is_new"] for row in found)
    assert found[0]["source"] == "class ModelNew: x = 2"
    assert not any(row["is_new"] for row in lessons(here, since="9999", count=9))
    assert [row["certified"] for row in lessons(here, since="", count=1)] == [2.0]
    assert lessons("another", since="", count=9) == []


@pytest.mark.slow
def test_the_history_has_every_answer_that_succeeded_and_no_other_program(ledger, facts):
    def history(*problems):
        found = ledger.query(
            "history", problem_ids=problems, device_kind="cpu", protocol_id=facts.protocol.id
        )
        return found["certified"].to_list()

    here = facts.problem().id
    before = history(here)
    assert before
    assert history("another") == []
    nobodys = facts.candidate("class ModelNew: x = 77")
    ledger.add_verdict(facts.correct(nobodys, 7.0), facts.samples(30))
    assert history(here) == before, "the harness judges references and baselines, too"
    ledger.add_completion(facts.completion("late", stage="search@x"), nobodys, None)
    assert sorted(history(here)) == sorted([*before, 7.0])
    ledger.add_ruling(facts.ruling(nobodys))
    assert history(here) == before, "a person saw a cheat"


@pytest.mark.slow
def test_replacements_of_a_problem_come_fastest_first(ledger, facts):
    seen = Properties(follows_weights=True, fresh_outputs=True, leaves_inputs=True)
    for certified in (1.2, 1.4):
        candidate = facts.candidate(f"lasts {certified}")
        ledger.add_completion(facts.completion(f"lasts {certified}"), candidate, None)
        ledger.add_verdict(facts.correct(candidate, certified, seen), [])
    assert ledger.query("replacements")["certified"].to_list() == [1.4, 1.2]


def test_a_vetoed_candidate_counts_nowhere(ledger, facts):
    best = facts.candidate("class ModelNew: x = 2")
    ledger.add_ruling(facts.ruling(best))
    asked = {"problem_id": facts.problem().id, "device_kind": "cpu", "candidate_id": "new"}
    found = ledger.query("record", **asked, protocol_id=facts.protocol.id)
    assert found["certified"].to_list() == [1.5]
    assert best.id not in ledger.sql("from successes")["candidate_id"].to_list()
    outcomes = ledger.sql("select outcome from outcomes where candidate_id = ?", [best.id])
    assert outcomes["outcome"].to_list() == ["hacked"]
    exemplars = ledger.births(
        facts.problem().id,
        device_kind="cpu",
        protocol_id=facts.protocol.id,
        stages=["filter"],
        attempts_per_step=100,
    )
    assert best.id not in [exemplar.candidate_id for exemplar in exemplars]


def test_a_vetoed_candidate_has_no_speedup_and_a_flag(ledger, facts):
    best = facts.candidate("class ModelNew: x = 2")
    ledger.add_ruling(facts.ruling(best))
    row = only(ledger.sql("from judged"), candidate_id=best.id)
    assert [row[name] for name in ("speedup", "certified", "lower", "upper")] == [None] * 4
    flags = ledger.query("flags").filter(candidate_id=best.id)
    assert sorted(flags["source"].to_list()) == ["person", "screen"]
    assert only(ledger.query("flag_kinds"), seen_by="person")["num_candidates"] == 1


def test_a_suspect_without_a_review_has_no_answer(ledger, facts):
    asked = facts.candidate("class ModelNew: x = 3")
    verdict = facts.correct(asked).model_copy(update={"second_opinion": SecondOpinion.ASKED})
    ledger.add_verdict(verdict, [])
    row = only(ledger.query("second_opinions"), candidate_id=asked.id)
    assert (row["trigger"], row["is_cheat"], row["ruling"]) == (None, None, None)


@pytest.mark.slow
def test_stages_that_used_a_candidate_are_listed_in_the_order_of_the_pipeline(
    ledger, facts, tmp_path
):
    first, second = (facts.candidate(f"class ModelNew: x = {i}") for i in range(2))
    for candidate in (first, second):
        ledger.add_review(facts.review(candidate, code="the same"))
    ledger.export()
    ledger.close()
    for stage in ("rl", "generate@replay"):
        with Ledger.open(tmp_path) as other:
            other.begin(stage)
            facts.known(other, second)
            other.export()
    with Ledger.open(tmp_path) as again:
        used = again.query("used_by", candidate_id=first.id)
        assert used["stage"].to_list() == ["generate@replay", "filter", "rl"]


def test_suspects_are_listed_with_the_source_of_their_flag_and_the_missing_ruling(ledger, facts):
    second = facts.candidate("class ModelNew: x = 1")
    ledger.add_review(facts.review(second))
    row = only(ledger.query("suspects"), candidate_id=second.id)
    assert (row["seen_by"], row["kind"], row["ruled_at"]) == ("reviewer", "cached_output", None)


def test_flag_kinds_counts_candidates_not_flags(ledger):
    row = only(ledger.query("flag_kinds"), kind="odd_import")
    assert (row["num_candidates"], row["decides"], row["example"]) == (3, False, "line 1")


def test_cost_counts_failures_too_and_shows_the_amount_in_doubt(ledger):
    row = only(ledger.query("cost"), provider="openai")
    assert (row["num_answers"], row["num_tries"]) == (3, 5)
    assert (row["cost_usd"], row["usd_per_correct"]) == (0.75, 0.75)
    assert (row["num_in_doubt"], row["in_doubt_usd"]) == (1, 1.0)


def test_the_bill_holds_the_reviewers_answers(ledger):
    assert only(ledger.query("cost"), provider="reviewer")["num_answers"] == 1


def test_spending_counts_doubtful_amounts_in_full(ledger):
    row = ledger.query("spent", provider="openai").to_dicts()[0]
    assert (row["cost_usd"], row["at_most_usd"]) == (0.75, 1.75)
    nobody = ledger.query("spent", provider="nobody").to_dicts()[0]
    assert (nobody["cost_usd"], nobody["at_most_usd"]) == (0, 0)


def test_exemplar_use_shows_the_outcomes_of_the_answers(ledger, facts):
    row = only(
        ledger.query("exemplar_use"), candidate_id=facts.candidate("class ModelNew: x = 0").id
    )
    assert (row["num_uses"], row["num_correct"], row["best_answer"]) == (2, 2, 2.0)


def test_mutants_names_the_problem_and_the_killer_of_each(ledger):
    row = only(ledger.query("mutants"), mutant="zeros")
    assert (row["name"], row["killed"], row["family"], row["num_inputs"]) == (
        "softmax",
        True,
        "own",
        1,
    )


def test_exemplar_uses_counts_positions_from_one(ledger):
    found = ledger.sql("select position from exemplar_uses where completion_id = 'c'")
    assert sorted(found["position"].to_list()) == [1, 2]


def failures(ledger, facts, **changed) -> list[str]:
    """Return the sources of the failures that a step of stage `rl` may show."""
    asked = {
        "device_kind": "cpu",
        "protocol_id": facts.protocol.id,
        "statuses": [Status.CRASHED],
        "stages": ["filter"],
        "first_attempt": 300,
        "island": None,
        "count": 9,
        **changed,
    }
    found = ledger.failures(facts.problem().id, **asked)
    assert all(verdict.candidate_id == candidate.id for candidate, verdict in found)
    return [candidate.source for candidate, _ in found]


def fail(ledger, facts, source: str, attempt: int, island: int | None = None) -> None:
    """Note a failure of stage `rl`."""
    answer = facts.completion(f"{source} {attempt}", stage="rl")
    placed = {"attempt": attempt, "island": island}
    ledger.add_completion(answer.model_copy(update=placed), facts.candidate(source), None)
    ledger.add_verdict(facts.failed(facts.candidate(source)), [])


@pytest.fixture
def failing(tmp_path, facts):
    """Make a ledger in which `filter` had a failure and `rl` has three, of two programs."""
    with Ledger.open(tmp_path / "failing") as ledger:
        ledger.begin("filter")
        old = facts.candidate("class ModelNew: old = f(1)")
        ledger.add_completion(facts.completion("old", stage="generate@x"), old, None)
        ledger.add_verdict(facts.failed(old), [])
        ledger.export()
    with Ledger.open(tmp_path / "failing") as ledger:
        ledger.begin("rl")
        fail(ledger, facts, "class ModelNew: a = f(2)", 100, island=0)
        fail(ledger, facts, "class ModelNew: b = f(3)", 200, island=1)
        fail(ledger, facts, "class ModelNew: c = f(2)", 201, island=1)
        yield ledger


def test_failures_are_of_distinct_programs_and_the_newest_is_last(failing, facts):
    assert failures(failing, facts) == [
        "class ModelNew: old = f(1)",
        "class ModelNew: b = f(3)",
        "class ModelNew: c = f(2)",
    ]
    assert failures(failing, facts, count=1) == ["class ModelNew: c = f(2)"]


def test_failures_of_a_step_itself_are_left_out(failing, facts):
    assert failures(failing, facts, first_attempt=200) == [
        "class ModelNew: old = f(1)",
        "class ModelNew: a = f(2)",
    ]


def test_failures_of_an_island_are_its_own(failing, facts):
    assert failures(failing, facts, island=0) == ["class ModelNew: a = f(2)"]


def test_successes_and_failures_of_other_kinds_are_no_failures(failing, facts):
    good = facts.candidate("class ModelNew: good = f(4)")
    failing.add_completion(facts.completion("good", stage="rl"), good, None)
    failing.add_verdict(facts.correct(good), [])
    assert good.source not in failures(failing, facts)
    assert failures(failing, facts, statuses=[Status.NO_BUILD]) == []


@pytest.mark.slow
@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_every_query_begins_with_its_question_and_runs(ledger, facts, path):
    text = path.read_text(encoding="utf-8")
    assert re.match(r"-- [A-Z]", text)
    given = {
        "protocol_id": facts.protocol.id,
        "device_kind": "cpu",
        "stage": "filter",
        "count": 2,
        "candidate_id": "x",
        "candidate_ids": ["x"],
        "generations": 2,
        "keys": ["x"],
        "stages": ["filter"],
        "problem_id": "x",
        "provider": "openai",
        "running": "rl",
        "attempts_per_step": 100,
        "first_attempt": 300,
        "step": 3,
        "problem_ids": ["x"],
        "since": "2026-01-01T00:00:00+00:00",
        "baselines": ["compile"],
        "statuses": ["crashed"],
        "island": None,
    }
    wanted = set(re.findall(r"\$(\w+)", text))
    ledger.query(path.stem, **{name: given[name] for name in wanted})


def test_technique_rows_are_those_of_one_place(ledger, facts):
    place = {"device_kind": "cpu", "protocol_id": facts.protocol.id}
    assert ledger.query("technique_rows", **place).is_empty()
    source = "import torch\nclass Model:\n    def forward(self, x): return x + 1\n"
    problem = facts.problem().model_copy(update={"source": source})
    ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
    faster = source.replace("Model", "ModelNew").replace("x + 1", "x.add_(1)")
    candidate = Candidate(problem_id=problem.id, source=faster)
    answer = facts.completion("new").model_copy(update={"problem_id": problem.id})
    ledger.add_completion(answer, candidate, None)
    ledger.add_verdict(facts.correct(candidate), [])
    found = ledger.query("technique_rows", **place).to_dicts()
    assert found == [{"candidate_id": candidate.id, "technique": "in_place"}]
    assert ledger.query("technique_rows", **{**place, "device_kind": "else"}).is_empty()
