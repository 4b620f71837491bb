"""Tests that the ledger keeps each fact once, for every stage."""

from __future__ import annotations

import os
import subprocess
import sys

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cudal1.errors import StoreError
from cudal1.ledger import Ledger
from cudal1.problem import Admission
from cudal1.verdict import Phases


def test_a_verdict_comes_back_whole(tmp_path, facts):
    candidate = facts.candidate()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        ledger.add_verdict(facts.correct(candidate), facts.samples())
        assert facts.known(ledger, candidate) == facts.correct(candidate)


def test_a_verdict_of_another_protocol_is_not_found(tmp_path, facts):
    candidate = facts.candidate()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        ledger.add_verdict(facts.correct(candidate), facts.samples())
        assert ledger.verdict(candidate, device_kind="cpu", protocol_id="other") is None
        assert ledger.verdict(candidate, device_kind="gpu", protocol_id=facts.protocol.id) is None


def test_a_second_append_changes_nothing(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        once = facts.content(ledger)
        facts.fill(ledger)
        assert facts.content(ledger) == once
        assert len(once["timing_samples"]) == 24


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(st.text(st.characters(exclude_categories=())), max_size=4))
def test_any_text_comes_back_as_it_was(tmp_path_factory, facts, texts):
    folder = tmp_path_factory.mktemp("ledger")
    texts = [*texts, "lone \ud800 and \udfff", "nul \0 end", '{"base64": "x"}']
    with Ledger.open(folder) as ledger:
        ledger.begin("generate@x")
        for number, text in enumerate(texts):
            ledger.add_completion(facts.completion(str(number), text=text), None, "none")
    (folder / ".ledger.duckdb").unlink()
    with Ledger.open(folder) as ledger:
        for number, text in enumerate(texts):
            found = ledger.completion(str(number))
            assert found is not None
            assert found.text == text


def test_a_reason_with_a_lone_surrogate_is_kept(tmp_path, facts):
    verdict = facts.failed(facts.candidate(), reason="ValueError: \ud800 \0")
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        ledger.add_verdict(verdict, [])
        assert facts.known(ledger, facts.candidate()) == verdict


def test_an_answer_replaces_a_failed_request_and_never_the_reverse(tmp_path, facts):
    failed = facts.completion("a", text="", finish_reason="error: 500")
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x")
        for completion in (failed, facts.completion("a", text="paid for"), failed):
            ledger.add_completion(completion, None, "none")
        found = ledger.completion("a")
        assert found is not None
        assert found.text == "paid for"


def test_a_later_extraction_from_an_answer_replaces_the_first(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("generate@x")
        ledger.add_completion(facts.completion("a"), None, "no code block")
        ledger.add_completion(facts.completion("a"), facts.candidate(), None)
        row = ledger.sql("select candidate_id, no_candidate_reason from completions").row(0)
        assert row == (facts.candidate().id, None)


@pytest.mark.slow
@pytest.mark.parametrize("count", [4, 40])
def test_a_batch_of_answers_equals_single_answers(tmp_path, facts, count):
    answers = [
        (facts.completion(str(i)), None, "no code block")
        if i % 4 == 1
        else (facts.completion(str(i)), facts.candidate("other" if i == 3 else "same"), None)
        for i in range(count)
    ]
    contents = []
    for name in ("one by one", "at once"):
        with Ledger.open(tmp_path / name) as ledger:
            ledger.begin("rl")
            if name == "at once":
                ledger.add_completions(answers)
            else:
                for answer in answers:
                    ledger.add_completion(*answer)
            ledger.export()
            contents.append(facts.content(ledger))
        (tmp_path / name / ".ledger.duckdb").unlink()
        with Ledger.open(tmp_path / name) as ledger:
            assert facts.content(ledger) == contents[-1]
    assert len(contents[0]["completions"]) == count
    assert len(contents[0]["candidates"]) == 2
    assert contents[0] == contents[1]


def test_a_verdict_has_columns_for_its_seconds_by_activity(tmp_path, facts):
    candidates = [facts.candidate(f"class ModelNew: x = {number}") for number in range(2)]
    spent = Phases(starting_s=0.5, compiling_s=4.0, checking_s=0.25, measuring_s=1.0)
    noted = facts.correct(candidates[0]).model_copy(update={"phases": spent})
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        for candidate, verdict in zip(
            candidates, (noted, facts.correct(candidates[1])), strict=True
        ):
            ledger.add_candidate(candidate)
            ledger.add_verdict(verdict, ())
        columns = ", ".join(Phases.model_fields)
        rows = ledger.sql(f"select {columns} from verdicts order by compiling_s nulls last").rows()
        assert rows == [(0.5, 4.0, 0.25, 1.0), (None,) * 4]
        where = {"device_kind": noted.device_kind, "protocol_id": noted.protocol_id}
        assert ledger.verdict(candidates[0], **where) == noted


def test_the_latest_admission_holds(tmp_path, facts):
    problem = facts.problem()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("problems")
        ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=False, reason="slow"))
        ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        assert ledger.sql("select admitted, rejection from problems").row(0) == (True, None)


def test_a_problem_holds_the_invariants_of_its_inputs(tmp_path, facts):
    problem, held = facts.problem(), ("input 0: lower triangular", "input 1: values in {-1, 1}")
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("problems")
        ledger.add_problem(
            problem, Admission(problem_id=problem.id, admitted=True, invariants=held)
        )
        ledger.export()
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as ledger:
        assert ledger.sql("select invariants from problems").row(0) == (list(held),)


def test_a_repeated_step_replaces_its_rewards(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        ledger.add_rewards(7, [("old", 1.0, 0.1)])
        ledger.add_rewards(7, [("new", 2.0, 0.2)])
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as ledger:
        assert ledger.sql("select completion_id from rewards")["completion_id"].to_list() == ["new"]


def test_exemplars_are_the_timed_successes_of_the_problem(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        facts.fill(ledger)
        found = ledger.births(
            facts.problem().id,
            device_kind="cpu",
            protocol_id=facts.protocol.id,
            stages=["rl"],
            attempts_per_step=100,
        )
        assert sorted(exemplar.score for exemplar in found) == [1.1, 1.5, 2.0]
        shown = ledger.shown(reversed(found))
        assert [exemplar.candidate_id for exemplar in shown] == [b.candidate_id for b in found][
            ::-1
        ]
        assert all(exemplar.source.startswith("class ModelNew") for exemplar in shown)


@pytest.mark.slow
def test_an_exemplar_appears_once_for_each_birth(tmp_path, facts):
    first = facts.candidate("class ModelNew: x = 0")

    def find(ledger, key: str, attempt: int, island: int | None, stage: str) -> None:
        born = {"attempt": attempt, "island": island}
        answer = facts.completion(key, stage=stage).model_copy(update=born)
        ledger.add_completion(answer, first, None)

    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        ledger.export()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        find(ledger, "r1", 203, 1, "rl")
        find(ledger, "r2", 507, 0, "rl")
        found = ledger.births(
            facts.problem().id,
            device_kind="cpu",
            protocol_id=facts.protocol.id,
            stages=["filter", "rl"],
            attempts_per_step=100,
        )
    births = [(e.born, e.island) for e in found if e.candidate_id == first.id]
    assert births == [(None, None), (2, 1), (5, 0)]


@pytest.mark.slow
def test_exemplars_of_a_finished_run_are_not_those_of_the_next(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl", run="old")
        facts.fill(ledger)
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl", run="new")
        assert (
            ledger.births(
                facts.problem().id,
                device_kind="cpu",
                protocol_id=facts.protocol.id,
                stages=["rl"],
                attempts_per_step=100,
            )
            == []
        )


@pytest.mark.slow
def test_a_fact_that_a_stage_finds_becomes_a_fact_of_that_stage(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        ledger.export()
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("rl")
        assert facts.known(ledger, facts.candidate("class ModelNew: x = 0")) is not None
        assert ledger.completion("a") is not None
        ledger.export()
    used = {p.stem: pl.read_parquet(p).height for p in (tmp_path / "shards/rl").iterdir()}
    assert used == {
        "candidates": 1,
        "completions": 1,
        "hack_flags": 1,
        "members": 2,
        "protocols": 1,
        "timing_samples": 8,
        "verdicts": 1,
    }


def test_a_wrong_query_gives_one_clear_line(tmp_path):
    with Ledger.open(tmp_path) as ledger, pytest.raises(StoreError, match="nowhere") as caught:
        ledger.sql("select * from nowhere")
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_second_writer_is_told_which_process_writes(tmp_path):
    code = (
        "import sys, pathlib\nfrom cudal1.ledger import Ledger\n"
        "from cudal1.errors import StoreError\n"
        "try: Ledger.open(pathlib.Path(sys.argv[1]))\n"
        "except StoreError as error: print(error)\n"
    )
    with Ledger.open(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
        )
    assert f"in use by process {os.getpid()}" in done.stdout
    assert done.stdout.count("\n") == 1


def test_a_reader_beside_a_writer_sees_every_append(tmp_path, facts, caplog):
    with Ledger.open(tmp_path) as writer:
        writer.begin("filter")
        facts.fill(writer)
        with Ledger.read(tmp_path) as reader:
            assert facts.content(reader) == facts.content(writer)
    assert caplog.messages == ["ledger: with what unfinished stages have found until now: filter"]


def test_reading_does_not_change_the_folder(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter")
        facts.fill(ledger)
        ledger.export()

    def files():
        return {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    before = files()
    with Ledger.read(tmp_path) as ledger:
        assert ledger.sql("from verdicts").height == 4
    assert files() == before


def test_reading_without_a_ledger_gives_the_remedy(tmp_path):
    with pytest.raises(StoreError, match="make run"):
        Ledger.read(tmp_path)


@pytest.mark.parametrize("count", [2, 40])  # a few rows and many go in by different ways
def test_a_new_kill_table_replaces_the_old_one(tmp_path, facts, count):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("problems")
        ledger.add_kill_table(facts.kill_table("zeros", "gone", *(f"m{i}" for i in range(count))))
        ledger.add_kill_table(facts.kill_table("stale", *(f"m{i}" for i in range(count))))
        names = ledger.sql("select mutant from mutants")["mutant"].to_list()
        assert sorted(names) == sorted(["stale", *(f"m{i}" for i in range(count))])


def test_a_kill_table_is_in_the_shard_of_its_problem_and_comes_back(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("problems")
        problem = facts.problem()
        ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
        ledger.add_kill_table(facts.kill_table("zeros", "shuffled"))
        shard = ledger.export()
        assert (shard / "mutants.parquet").exists()
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as ledger:
        found = ledger.sql("select mutant, killed, family, num_inputs from mutants order by mutant")
        assert found.rows() == [("shuffled", None, None, None), ("zeros", True, "own", 1)]


@pytest.mark.slow
def test_a_reader_and_a_writer_never_wait_for_each_other_and_see_the_same(tmp_path, facts):
    with Ledger.open(tmp_path) as writer:
        writer.begin("filter")
        facts.fill(writer)
        names = writer.sql(
            "select view_name as name from duckdb_views() where not internal "
            "union all select table_name from duckdb_tables() where table_name <> 'meta'"
        )["name"].to_list()
        questions = [*names, f"lineage('{facts.candidate('class ModelNew: x = 2').id}')"]
        with Ledger.read(tmp_path) as reader:
            for question in questions:
                seen = reader.sql(f"from {question}")
                assert seen.height == writer.sql(f"from {question}").height
            writer.add_steps(3, {"loss": 0.5})  # while the reader is open
            for question in ("best", "success", "reliability", "runs", "timing_spreads"):
                ours = writer.sql(f"from {question} order by all")
                assert reader.sql(f"from {question} order by all").equals(ours)
        writer.export()
    with Ledger.read(tmp_path) as reader:
        assert reader.sql("from training_steps where step = 3").height == 1
