"""Each named query answers its question; each example in docs/sql.md and README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cudal1.ledger
from cudal1.ledger import Ledger
from cudal1.verdict import SecondOpinion

QUERIES = sorted((Path(cudal1.ledger.__file__).parent / "queries").glob("*.sql"))
ROOT = Path(__file__).parents[2]
EXAMPLES = [
    example
    for document in (ROOT / "docs" / "sql.md", ROOT / "README.md")
    for example in re.findall(r"```sql\n(.*?)```", document.read_text(encoding="utf-8"), re.DOTALL)
]


@pytest.fixture
def ledger(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        yield ledger


def only(frame, **wanted):
    """The one row with these values."""
    found = [row for row in frame.to_dicts() if wanted.items() <= row.items()]
    assert len(found) == 1, found
    return found[0]


def test_providers_counts_answers_candidates_and_successes(ledger):
    row = only(ledger.query("providers"), provider="openai")
    counts = {
        name: row[name] for name in ("num_asked", "num_extracted", "num_built", "num_correct")
    }
    assert counts == {"num_asked": 3, "num_extracted": 2, "num_built": 2, "num_correct": 1}
    assert row["correct_share"] == pytest.approx(1 / 3)


def test_providers_counts_an_answer_once_though_two_stages_use_it(ledger, tmp_path):
    ledger.export()
    ledger.close()
    with Ledger.open(tmp_path) as again:
        again.begin("rl")
        again.adopt_completion("e")
        assert only(again.query("providers"), provider="openai")["num_asked"] == 3


def test_the_record_is_the_best_certified_speedup_under_the_same_protocol(ledger, facts):
    asked = {"problem_id": facts.problem().id, "device_kind": "cpu", "candidate_id": "new"}
    found = ledger.query("record", **asked, protocol_id=facts.protocol.id)
    assert found["certified"].to_list() == [2.0]
    nobody = ledger.query("record", **asked, protocol_id="another")
    assert nobody["certified"].to_list() == [None]


def test_nobody_competes_with_their_own_record(ledger, facts):
    found = ledger.query(
        "record", problem_id=facts.problem().id, device_kind="cpu",
        protocol_id=facts.protocol.id,
        candidate_id=facts.candidate("class ModelNew: x = 2").id,
    )  # fmt: skip
    assert found["certified"].to_list() == [1.5]


def test_lessons_are_the_best_of_the_asked_problems_and_say_which_are_new(ledger, facts):
    def lessons(*problems, since, count):
        return ledger.query(
            "lessons", problem_ids=problems, since=since, count=count, device_kind="cpu",
            protocol_id=facts.protocol.id,
        ).to_dicts()  # fmt: skip

    here = facts.problem().id
    found = lessons(here, since="", count=9)
    assert [row["certified"] for row in found] == [2.0, 1.5, 1.1]
    assert all(row["is_new"] for row in found)
    assert found[0]["source"] == "class ModelNew: x = 2"
    assert not any(row["is_new"] for row in lessons(here, since="9999", count=9))
    assert [row["certified"] for row in lessons(here, since="", count=1)] == [2.0]
    assert lessons("another", since="", count=9) == []


def test_what_is_vetoed_counts_nowhere(ledger, facts):
    best = facts.candidate("class ModelNew: x = 2")
    ledger.add_ruling(facts.ruling(best))
    asked = {"problem_id": facts.problem().id, "device_kind": "cpu", "candidate_id": "new"}
    found = ledger.query("record", **asked, protocol_id=facts.protocol.id)
    assert found["certified"].to_list() == [1.5]
    assert best.id not in ledger.sql("from successes")["candidate_id"].to_list()
    outcomes = ledger.sql("select outcome from outcomes where candidate_id = ?", [best.id])
    assert outcomes["outcome"].to_list() == ["hacked"]
    exemplars = ledger.births(
        facts.problem().id, device_kind="cpu", protocol_id=facts.protocol.id,
        stages=["filter"], attempts_per_step=100,
    )  # fmt: skip
    assert best.id not in [exemplar.candidate_id for exemplar in exemplars]


def test_what_is_vetoed_has_no_speedup_and_a_flag(ledger, facts):
    best = facts.candidate("class ModelNew: x = 2")
    ledger.add_ruling(facts.ruling(best))
    row = only(ledger.sql("from judged"), candidate_id=best.id)
    assert [row[name] for name in ("speedup", "certified", "lower", "upper")] == [None] * 4
    flags = ledger.query("flags").filter(candidate_id=best.id)
    assert sorted(flags["source"].to_list()) == ["person", "screen"]
    assert only(ledger.query("flag_kinds"), seen_by="person")["num_candidates"] == 1


def test_a_suspect_whom_nobody_could_be_asked_about_has_no_answer(ledger, facts):
    asked = facts.candidate("class ModelNew: x = 3")
    verdict = facts.correct(asked).model_copy(update={"second_opinion": SecondOpinion.ASKED})
    ledger.add_verdict(verdict, [])
    row = only(ledger.query("second_opinions"), candidate_id=asked.id)
    assert (row["trigger"], row["is_cheat"], row["ruling"]) == (None, None, None)


def test_who_used_a_candidate_is_told_in_the_order_of_the_pipeline(ledger, facts, tmp_path):
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


def test_suspects_names_who_saw_what_and_who_waits_for_a_person(ledger, facts):
    second = facts.candidate("class ModelNew: x = 1")
    ledger.add_review(facts.review(second))
    row = only(ledger.query("suspects"), candidate_id=second.id)
    assert (row["seen_by"], row["kind"], row["ruled_at"]) == ("judge", "cached_output", None)


def test_best_speedups_names_the_winner_and_who_wrote_it(ledger, facts):
    frame = ledger.query("best_speedups", protocol_id=facts.protocol.id)
    row = only(frame, name="softmax")
    assert (row["certified"], row["authors"]) == (2.0, ["openai"])


def test_flag_kinds_counts_candidates_not_flags(ledger):
    row = only(ledger.query("flag_kinds"), kind="odd_import")
    assert (row["num_candidates"], row["decides"], row["example"]) == (3, False, "line 1")


def test_timing_spread_is_relative_to_the_median(ledger, facts):
    frame = ledger.query("timing_spread")
    first = facts.candidate("class ModelNew: x = 0").id
    row = only(frame, candidate_id=first, role="reference")
    assert (row["num_samples"], row["median_us"]) == (4, 23.5)  # 20, 23, 24, 27
    assert row["iqr_us"] == pytest.approx(24.75 - 22.25)
    assert row["relative_iqr"] == pytest.approx(2.5 / 23.5)


def test_leaderboard_takes_the_best_of_each_problem(ledger):
    row = only(ledger.query("leaderboard"), provider="replay")
    assert (row["num_problems"], row["num_faster"], row["best"]) == (1, 1, 1.5)
    assert row["geometric_mean"] == pytest.approx(1.5)


def test_status_counts_counts_what_became_of_every_answer(ledger):
    counts = {
        row["outcome"]: row["num_answers"] for row in ledger.query("status_counts").to_dicts()
    }
    assert counts == {"correct": 3, "crashed": 1, "no_source": 1}


def test_stage_success_counts_a_failure_as_no_reward(ledger):
    row = only(ledger.query("stage_success"), stage="filter", split="train")
    assert row["success_rate"] == pytest.approx(3 / 5)
    assert row["mean_certified"] == pytest.approx((1.1 + 1.5 + 2.0) / 3)
    assert row["mean_reward"] == pytest.approx((1.1 + 1.5 + 2.0) / 5)


def test_lineage_follows_exemplars_back_to_the_first(ledger, facts):
    ids = [facts.candidate(f"class ModelNew: x = {i}").id for i in range(3)]
    frame = ledger.query("lineage", candidate_id=ids[2])
    assert dict(frame.select("candidate_id", "generation").iter_rows()) == {
        ids[2]: 0, ids[1]: 1, ids[0]: 1,
    }  # fmt: skip


def test_lineage_ends_though_candidates_descend_from_each_other(ledger, facts):
    ids = [facts.candidate(f"class ModelNew: x = {i}").id for i in range(2)]
    again = facts.completion("again", shown=(ids[1],))
    ledger.add_completion(again, facts.candidate("class ModelNew: x = 0"), None)
    assert ledger.query("lineage", candidate_id=ids[1]).height == 2


def test_cost_counts_failures_too_and_says_what_is_in_doubt(ledger):
    row = only(ledger.query("cost"), provider="openai")
    assert (row["num_answers"], row["num_tries"]) == (3, 5)
    assert (row["cost_usd"], row["usd_per_correct"]) == (0.75, 0.75)
    assert (row["num_in_doubt"], row["in_doubt_usd"]) == (1, 1.0)


def test_the_judge_s_answers_are_in_the_bill(ledger):
    assert only(ledger.query("cost"), provider="hack_judge")["num_answers"] == 1


def test_what_is_spent_counts_doubt_in_full(ledger):
    row = ledger.query("spent", provider="openai").to_dicts()[0]
    assert (row["cost_usd"], row["at_most_usd"]) == (0.75, 1.75)
    nobody = ledger.query("spent", provider="nobody").to_dicts()[0]
    assert (nobody["cost_usd"], nobody["at_most_usd"]) == (0, 0)


def test_exemplar_use_tells_how_the_answers_did(ledger, facts):
    row = only(
        ledger.query("exemplar_use"), candidate_id=facts.candidate("class ModelNew: x = 0").id
    )
    assert (row["num_uses"], row["num_correct"], row["best_answer"]) == (2, 2, 2.0)


def test_mutants_names_the_problem_and_what_killed_each(ledger):
    row = only(ledger.query("mutants"), mutant="zeros")
    assert (row["name"], row["killed"], row["family"], row["num_inputs"]) == (
        "softmax", True, "own", 1,
    )  # fmt: skip


def test_exemplar_uses_counts_positions_from_one(ledger):
    found = ledger.sql("select position from exemplar_uses where completion_id = 'c'")
    assert sorted(found["position"].to_list()) == [1, 2]


@pytest.mark.parametrize("path", QUERIES, ids=lambda path: path.stem)
def test_every_query_begins_with_its_question_and_runs(ledger, facts, path):
    text = path.read_text(encoding="utf-8")
    assert re.match(r"-- [A-Z]", text)
    given = {
        "protocol_id": facts.protocol.id, "device_kind": "cpu", "stage": "filter", "count": 2,
        "candidate_id": "x", "candidate_ids": ["x"], "generations": 2, "keys": ["x"],
        "stages": ["filter"],
        "problem_id": "x", "provider": "openai", "running": "rl", "attempts_per_step": 100,
        "problem_ids": ["x"], "since": "2026-01-01T00:00:00+00:00",
    }  # fmt: skip
    wanted = set(re.findall(r"\$(\w+)", text))
    ledger.query(path.stem, **{name: given[name] for name in wanted})


def test_every_table_view_and_column_is_in_the_document(ledger):
    document = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
    columns = ledger.sql("select table_name, column_name from duckdb_columns() where not internal")
    assert columns.height > 50
    for table, column in columns.iter_rows():
        assert f"`{table}`" in document, table
        if not ledger.sql("from duckdb_views() where view_name = ?", [table]).height:
            section = document.split(f"### `{table}`", 1)[1].split("\n### ", 1)[0]
            assert f"`{column}`" in section, (table, column)


def test_every_table_and_view_has_a_comment(ledger):
    bare = ledger.sql(
        "select table_name from duckdb_tables() where comment is null union all "
        "select view_name from duckdb_views() where comment is null and not internal"
    )
    assert bare.is_empty()


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_the_examples_of_the_document_run(ledger, number):
    assert len(EXAMPLES) >= 10
    assert ledger.sql(EXAMPLES[number]).height > 0
