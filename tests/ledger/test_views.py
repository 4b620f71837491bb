"""Tests that each view gives the answer that was worked out by hand from a few facts."""

from __future__ import annotations

import datetime

import polars as pl
import pytest

from cudal1.baseline import Baseline
from cudal1.candidate import Candidate
from cudal1.ledger import Ledger, schema
from cudal1.problem import Admission, Problem, Split
from cudal1.selection.progress import IMPROVED, REFERENCE_SCORE
from cudal1.verdict import FlagSource, HackFlag, Properties, Status

VIEWS = (schema.FOLDER / "views.sql").read_text(encoding="utf-8")


@pytest.fixture
def chain(facts):
    """Return three successes: 1.1 and 1.5 by replay; openai was shown both and reached 2.0."""
    return [facts.candidate(f"class ModelNew: x = {i}") for i in range(3)]


def only(frame, **wanted):
    """Return the one row with these values."""
    found = [row for row in frame.to_dicts() if wanted.items() <= row.items()]
    assert len(found) == 1, found
    return found[0]


def answered(ledger, facts, key, source, verdict=None, samples=(), **changes):
    """Add one more answer with a candidate in it, and its verdict."""
    candidate = facts.candidate(source)
    answer = facts.completion(key).model_copy(update=changes)
    ledger.add_completion(answer, candidate, None)
    ledger.add_verdict(verdict or facts.correct(candidate), list(samples))
    return candidate


def lasting(**changes):
    """Return the properties of a candidate that could replace its module."""
    seen = {"follows_weights": True, "fresh_outputs": True, "leaves_inputs": True}
    return Properties.model_validate({**seen, **changes})


# --- good candidates ------------------------------------------------------------------------------


def test_best_names_the_winner_and_its_provider(ledger, chain):
    row = only(ledger.sql("from best"))
    assert (row["name"], row["certified"], row["candidate_id"]) == ("softmax", 2.0, chain[2].id)
    assert row["authors"] == ["openai"]


def test_a_reference_is_the_best_of_no_problem(ledger, facts):
    reference = facts.candidate("class ModelNew: the reference")
    ledger.add_verdict(facts.correct(reference, 3.0), [])  # as a null test: no answer
    assert only(ledger.sql("from best"))["certified"] == 2.0
    assert reference.id not in ledger.sql("from ranking")["candidate_id"]


def test_the_ranking_has_every_success_of_an_answer_with_its_authors(ledger, chain):
    rows = ledger.sql("from ranking").to_dicts()
    assert [row["candidate_id"] for row in rows] == [each.id for each in reversed(chain)]
    assert [row["authors"] for row in rows] == [["openai"], ["replay"], ["replay"]]


def test_a_stage_s_own_judging_is_what_was_judged_while_it_ran(ledger, facts):
    before = only(ledger.sql("from judging"))
    assert (before["num_correct"], before["num_own"], before["own_judge_s"]) == (3, 0, 0.0)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    candidate = facts.candidate("class ModelNew: just now")
    verdict = facts.correct(candidate).model_copy(update={"judged_at": now, "judge_s": 2.5})
    ledger.add_verdict(verdict, [])
    after = only(ledger.sql("from judging"))
    assert (after["num_verdicts"], after["num_own"]) == (before["num_verdicts"] + 1, 1)
    assert after["own_judge_s"] == 2.5


SILU = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
"""


def named(ledger, facts, key, forward, verdict=None):
    """Add an answer to a problem with a reference, and its verdict."""
    problem = facts.problem().model_copy(update={"source": SILU})
    ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
    source = SILU.replace("Model", "ModelNew").replace("x * torch.sigmoid(x)", forward)
    candidate = Candidate(problem_id=problem.id, source=source)
    answer = facts.completion(key).model_copy(update={"problem_id": problem.id})
    ledger.add_completion(answer, candidate, None)
    ledger.add_verdict(verdict(candidate) if verdict else facts.correct(candidate, 1.7), [])
    return candidate


def test_techniques_are_those_of_timed_successes(ledger, facts):
    both = named(ledger, facts, "f", "torch.nn.functional.silu(x, inplace=True)")
    named(ledger, facts, "g", "torch.sigmoid_(x)", facts.failed)
    rows = ledger.sql("from techniques order by technique").to_dicts()
    assert [(row["technique"], row["candidate_id"]) for row in rows] == [
        ("fused_operator", both.id),
        ("in_place", both.id),
    ]
    assert {(row["name"], row["certified"]) for row in rows} == {("softmax", 1.7)}


def test_techniques_of_baselines_without_an_answer_are_left_out(ledger, facts):
    problem = facts.problem().model_copy(update={"source": SILU})
    ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
    source = SILU.replace("Model", "ModelNew").replace("x *", "x.neg_() *")
    candidate = Candidate(problem_id=problem.id, source=source)
    ledger.add_baseline(candidate, Baseline.COMPILE)
    ledger.add_verdict(facts.correct(candidate, 1.7), [])
    assert (
        ledger.sql("select techniques from candidates")
        .to_dicts()
        .count({"techniques": ["in_place"]})
    )
    assert ledger.sql("from techniques").is_empty()


def test_techniques_of_a_candidate_of_an_unknown_problem_are_unknown_until_it_comes(ledger, facts):
    candidate = Candidate(
        problem_id=facts.problem().model_copy(update={"source": SILU}).id,
        source=SILU.replace("Model", "ModelNew").replace("x *", "x.neg_() *"),
    )
    asked = "select techniques from candidates where candidate_id = ?"
    ledger.add_candidate(candidate)
    assert ledger.sql(asked, [candidate.id])["techniques"].to_list() == [None]
    named(ledger, facts, "f", "x.neg_() * torch.sigmoid(x)")
    assert ledger.sql(asked, [candidate.id])["techniques"].to_list() == [["in_place"]]


def test_replacements_are_faster_and_without_restrictions(ledger, facts):
    wanted = {
        answered(ledger, facts, name, name, facts.correct(facts.candidate(name), 1.3, seen)).id
        for name, seen in (
            ("whole", lasting()),
            ("no weights", lasting(follows_weights=None)),
            ("reference writes, too", lasting(leaves_inputs=None)),
        )
    }
    for name, certified, seen in (
        ("overwrites", 1.3, lasting(fresh_outputs=False)),
        ("nobody looked at outputs", 1.3, lasting(fresh_outputs=None)),
        ("ignores weights", 1.3, lasting(follows_weights=False)),
        ("writes", 1.3, lasting(leaves_inputs=False)),
        ("no gain", 1.0, lasting()),
        ("vetoed", 1.3, lasting()),
    ):
        verdict = facts.correct(facts.candidate(name), certified, seen)
        answered(ledger, facts, name, name, verdict)
    ledger.add_ruling(facts.ruling(facts.candidate("vetoed")))
    found = ledger.sql("from replacements")
    assert set(found["candidate_id"]) == wanted
    assert set(found["certified"]) == {1.3}


def test_replacements_leave_out_baselines_that_are_no_answers(ledger, facts):
    compiled = facts.candidate("class ModelNew: compiled")
    ledger.add_baseline(compiled, Baseline.COMPILE)
    ledger.add_verdict(facts.correct(compiled, 1.2, lasting()), [])
    assert ledger.sql("from replacements").is_empty()


def test_a_vetoed_candidate_has_no_properties(ledger, facts):
    candidate = answered(
        ledger, facts, "v", "v", facts.correct(facts.candidate("v"), 1.3, lasting())
    )
    ledger.add_ruling(facts.ruling(candidate))
    row = only(ledger.sql("from judged"), candidate_id=candidate.id)
    assert {row[name] for name in Properties.model_fields} == {None}


def test_best_is_the_next_candidate_once_the_winner_is_vetoed(ledger, facts, chain):
    ledger.add_ruling(facts.ruling(chain[2]))
    row = only(ledger.sql("from best"))
    assert (row["certified"], row["authors"]) == (1.5, ["replay"])


def test_best_leaves_out_verdicts_of_transfer(ledger, facts, chain, tmp_path):
    ledger.export()
    ledger.close()
    with Ledger.open(tmp_path) as transfer:
        transfer.begin("transfer@cpu")
        assert facts.known(transfer, chain[2]) is not None
        assert only(transfer.sql("from best"))["certified"] == 1.5


def test_best_leaves_out_baselines_that_are_no_answers(ledger, facts, chain):
    compiled = facts.candidate("class ModelNew: compiled")
    ledger.add_baseline(compiled, Baseline.COMPILE)
    ledger.add_verdict(facts.correct(compiled, 3.0), [])
    assert only(ledger.sql("from best"))["candidate_id"] == chain[2].id
    ledger.add_completion(facts.completion("f"), compiled, None)
    assert only(ledger.sql("from best"))["candidate_id"] == compiled.id


def test_baseline_results_hold_the_upper_bound(ledger, facts):
    compiled, captured = (facts.candidate(f"class ModelNew: {name}") for name in "ab")
    ledger.add_baseline(compiled, Baseline.COMPILE)
    ledger.add_baseline(captured, Baseline.REDUCE_OVERHEAD)
    verdict = facts.correct(compiled, 2.0)
    ledger.add_verdict(verdict, [])
    ledger.add_verdict(facts.failed(captured), [])
    row = only(ledger.sql("from baseline_results"), baseline="compile")
    assert (row["name"], row["speedup"], row["certified"]) == ("softmax", 2.05, 2.0)
    assert row["at_most"] == verdict.measurement.at_most
    row = only(ledger.sql("from baseline_results"), baseline="reduce_overhead")
    assert (row["status"], row["reason"], row["at_most"]) == ("crashed", "ValueError: no", None)


def test_over_baselines_divides_by_the_baseline_s_upper_bound(ledger, facts, chain):
    compiled, captured = (facts.candidate(f"class ModelNew: {name}") for name in "ab")
    ledger.add_baseline(compiled, Baseline.COMPILE)
    ledger.add_baseline(captured, Baseline.REDUCE_OVERHEAD)
    verdict = facts.correct(compiled, 2.0)
    ledger.add_verdict(verdict, [])
    ledger.add_verdict(facts.failed(captured), [])
    at_most = verdict.measurement.at_most
    frame = ledger.sql("from over_baselines order by certified_over")
    assert frame.select("name", "baseline", "candidate_id", "certified_over").rows() == [
        ("softmax", "compile", candidate.id, pytest.approx(certified / at_most))
        for candidate, certified in zip(chain, (1.1, 1.5, 2.0), strict=True)
    ]


def test_over_baselines_compares_within_one_device_and_protocol(ledger, facts, chain):
    compiled = facts.candidate("class ModelNew: compiled")
    ledger.add_baseline(compiled, Baseline.COMPILE)
    verdict = facts.correct(compiled, 2.0)
    for other in ({"device_kind": "GPU"}, {"protocol_id": "another"}):
        ledger.add_verdict(verdict.model_copy(update=other), [])
    assert ledger.sql("from over_baselines").is_empty()


def test_over_baselines_leaves_out_vetoed_candidates(ledger, facts, chain):
    compiled = facts.candidate("class ModelNew: compiled")
    ledger.add_baseline(compiled, Baseline.COMPILE)
    ledger.add_verdict(facts.correct(compiled, 2.0), [])
    ledger.add_ruling(facts.ruling(chain[2]))
    assert chain[2].id not in ledger.sql("from over_baselines")["candidate_id"].to_list()
    ledger.add_ruling(facts.ruling(compiled))
    assert ledger.sql("from over_baselines").is_empty()


def test_leaderboard_takes_the_best_of_each_problem(ledger, facts):
    other = facts.problem("gelu").id
    slower = facts.candidate("gelu").model_copy(update={"problem_id": other})
    ledger.add_completion(
        facts.completion("f").model_copy(update={"problem_id": other}), slower, None
    )
    ledger.add_verdict(facts.correct(slower, 0.5), [])
    row = only(ledger.sql("from leaderboard"), provider="replay")
    assert (row["stage"], row["num_problems"], row["num_faster"]) == ("filter", 2, 1)
    assert row["geometric_mean"] == pytest.approx(1.5**0.5)  # of 1.5 and, for 0.5, 1
    assert row["best"] == 1.5


def test_success_counts_answers_candidates_builds_and_successes(ledger, facts):
    broken = facts.candidate("class ModelNew: not python")
    verdict = facts.failed(broken).model_copy(update={"status": Status.NO_BUILD})
    answered(ledger, facts, "f", broken.source, verdict, provider="openai")
    row = only(ledger.sql("from success"), provider="openai")
    assert (row["stage"], row["split"]) == ("filter", "train")
    counts = [row[f"num_{what}"] for what in ("answers", "candidates", "built", "correct")]
    assert counts == [4, 3, 2, 1]  # c, d, e, f; not e; not f; not d, which crashes
    assert (row["success_rate"], row["mean_certified"], row["mean_reward"]) == (0.25, 2.0, 0.5)


def test_success_falls_when_a_success_is_vetoed(ledger, facts, chain):
    ledger.add_ruling(facts.ruling(chain[2]))
    row = only(ledger.sql("from success"), provider="openai")
    assert (row["num_built"], row["num_correct"]) == (2, 0)
    assert (row["mean_certified"], row["mean_reward"]) == (None, 0)


def test_success_counts_an_answer_once_after_a_check_and_a_measurement(ledger, facts, chain):
    checks = facts.correct(chain[2]).model_copy(update={"protocol_id": "checks"})
    ledger.add_verdict(checks.model_copy(update={"measurement": None}), [])
    assert ledger.sql("from outcomes where completion_id = 'c'").height == 2
    row = only(ledger.sql("from success"), provider="openai")
    assert (row["num_answers"], row["num_correct"], row["mean_certified"]) == (3, 1, 2.0)


def test_outcomes_has_the_outcome_of_each_answer(ledger):
    found = dict(ledger.sql("select completion_id, outcome from outcomes").rows())
    assert found == {
        "a": "correct",
        "b": "correct",
        "c": "correct",
        "d": "crashed",
        "e": "no_source",
    }


def test_successes_have_their_problem_and_no_failure(ledger, facts, chain):
    ledger.add_ruling(facts.ruling(chain[0]))
    rows = ledger.sql("select candidate_id, name, certified from successes order by certified")
    assert rows.rows() == [(chain[1].id, "softmax", 1.5), (chain[2].id, "softmax", 2.0)]


def test_providers_lists_each_provider_with_its_answers_and_its_first_and_last_try(ledger, facts):
    failed = facts.completion("f", provider="openai", text="", finish_reason="error: HTTP 500")
    ledger.add_completion(failed, None, None)
    over = facts.completion("g", provider="replay", text="", finish_reason="exhausted")
    ledger.add_completion(over, None, None)
    frame = ledger.sql("from providers")
    assert only(frame, provider="openai") == {
        "provider": "openai",
        "stages": ["filter"],
        "num_answers": 3,
        "num_failed": 1,
        "num_exhausted": 0,
        "first_try_at": datetime.datetime(2026, 1, 1),
        "last_try_at": datetime.datetime(2026, 1, 1, 0, 0, 4),
    }
    row = only(frame, provider="replay")
    assert (row["num_answers"], row["num_exhausted"], row["first_try_at"]) == (2, 1, None)
    assert only(frame, provider="reviewer")["num_answers"] == 1


def test_cost_counts_failures_too_and_shows_the_amount_in_doubt(ledger):
    row = only(ledger.sql("from cost"), provider="openai")
    assert (row["num_answers"], row["num_tries"]) == (3, 5)
    assert (row["num_prompt_tokens"], row["num_completion_tokens"]) == (30, 60)
    assert (row["cost_usd"], row["usd_per_correct"]) == (0.75, 0.75)  # 0 + 3 x 0.25, one correct
    assert (row["num_in_doubt"], row["in_doubt_usd"]) == (1, 1.0)


def test_cost_of_a_correct_answer_is_unknown_once_the_only_one_is_vetoed(ledger, facts, chain):
    ledger.add_ruling(facts.ruling(chain[2]))
    assert only(ledger.sql("from cost"), provider="openai")["usd_per_correct"] is None


# --- cheats ---------------------------------------------------------------------------------------


def test_hack_rate_is_by_day_and_counts_vetoes(ledger, facts, chain):
    ledger.add_ruling(facts.ruling(chain[0]))
    cheat = facts.candidate("class ModelNew: cheat")
    later = {"status": Status.HACKED, "judged_at": "2026-01-02T23:59:59Z"}
    answered(ledger, facts, "f", cheat.source, facts.failed(cheat).model_copy(update=later))
    assert ledger.sql("from hack_rate order by day").rows() == [
        (datetime.date(2026, 1, 1), "cpu", 4, 1, 1, 0.25),
        (datetime.date(2026, 1, 2), "cpu", 1, 1, 0, 1.0),
    ]


def test_hack_rate_by_step_is_the_rate_among_the_step_s_answers(ledger, facts, chain):
    ledger.add_rewards(2, [("b", 1.5, 0.1), ("c", 2.0, 0.2), ("e", 0.0, 0.0)])
    ledger.add_ruling(facts.ruling(chain[2]))
    rows = ledger.sql("from hack_rate_by_step order by step").rows()
    assert rows == [("filter", 1, 2, 2, 0, 0.0), ("filter", 2, 3, 2, 1, pytest.approx(1 / 3))]


def test_best_by_step_never_falls_and_is_separate_for_each_problem(ledger, facts, chain):
    ledger.add_rewards(5, [("b", 1.5, 0.1), ("c", 2.0, 0.2)])
    ledger.add_rewards(6, [("b", 0.0, 0.0)])
    rows = ledger.sql("select problem_id, step, best_speedup from best_by_step").rows()
    (problem_id,) = {row[0] for row in rows}
    assert sorted(rows)[-2:] == [(problem_id, 5, 2.0), (problem_id, 6, 2.0)]
    assert ledger.query("best_so_far", stage="filter", step=5).rows() == [(problem_id, 2.0)]


def test_a_vetoed_candidate_has_raised_no_best(ledger, facts, chain):
    ledger.add_rewards(5, [("b", 1.5, 0.1), ("c", 2.0, 0.2)])
    assert ledger.query("best_so_far", stage="filter", step=5)["best"].to_list() == [2.0]
    ledger.add_ruling(facts.ruling(chain[2]))
    assert ledger.query("best_so_far", stage="filter", step=5)["best"].to_list() == [1.5]


def test_rises_are_the_steps_that_raised_a_problem_s_best(ledger, facts, chain):
    other = facts.problem("other")
    ledger.add_problem(other, Admission(problem_id=other.id, admitted=True))
    answer = facts.completion("z").model_copy(update={"problem_id": other.id})
    ledger.add_completion(answer, Candidate(problem_id=other.id, source="class ModelNew: z"), None)
    ledger.add_rewards(5, [("b", 1.5, 0.1), ("c", 1.2, 0.2), ("z", 3.0, 0.1)])
    ledger.add_rewards(6, [("b", 1.5, 0.0), ("z", 2.0, 0.1)])
    ledger.add_rewards(7, [("b", 2.5, 0.0)])
    found = ledger.query("all_rises", stages=["filter"]).select(
        "problem_id", "step", "best_speedup"
    )
    mine = facts.problem().id
    assert set(found.rows()) >= {(mine, 6, 1.5), (mine, 8, 2.5), (other.id, 6, 3.0)}
    assert found.filter(pl.col("step") > 5).height == 3
    assert ledger.query("all_rises", stages=["another"]).is_empty()


def test_vetoes_words_flags_and_judged_follow_the_latest_ruling(ledger, facts, chain):
    ledger.add_ruling(facts.ruling(chain[1]))
    assert only(ledger.sql("from vetoes"), candidate_id=chain[1].id)["source"] == "person"
    assert only(ledger.sql("from words"), candidate_id=chain[1].id)["is_cheat"]
    flags = ledger.sql("from flags").filter(candidate_id=chain[1].id)["source"].to_list()
    assert sorted(flags) == ["person", "screen"]
    judged = only(ledger.sql("from judged"), candidate_id=chain[1].id)
    assert (judged["status"], judged["certified"], judged["vetoed_by"]) == (
        "hacked",
        None,
        "person",
    )
    ledger.add_ruling(facts.ruling(chain[1], is_cheat=False, at="2026-02-01T00:00:00Z"))
    assert chain[1].id not in ledger.sql("from vetoes")["candidate_id"].to_list()
    assert only(ledger.sql("from judged"), candidate_id=chain[1].id)["certified"] == 1.5


def test_cases_are_the_shipped_and_the_confirmed_ones(ledger, facts, chain):
    ledger.add_ruling(facts.ruling(chain[1]))
    found = {row["case_id"]: row["origin"] for row in ledger.sql("from cases").to_dicts()}
    assert found[facts.case.id] == "shipped"
    assert found[chain[1].id] == "confirmed"


# --- reliability of times -------------------------------------------------------------------------


def test_timing_spreads_are_medians_and_quartiles_of_each_role(ledger, facts, chain):
    frame = ledger.sql("from timing_spreads").filter(candidate_id=chain[0].id)
    reference = only(frame, role="reference")  # 20, 23, 24, 27
    assert (reference["num_samples"], reference["median_us"]) == (4, 23.5)
    assert reference["iqr_us"] == pytest.approx(24.75 - 22.25)
    assert only(frame, role="candidate")["iqr_us"] == pytest.approx(25.25 - 21.75)


@pytest.mark.slow
def test_timing_spreads_are_the_same_from_a_shard(ledger, tmp_path):
    before = ledger.sql("from timing_spreads order by all")
    ledger.export()
    ledger.close()
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as again:
        assert again.sql("from timing_spreads order by all").equals(before)


def test_reliability_holds_spread_repetition_and_null_tests(ledger, facts):
    again = [s.model_copy(update={"session": 1, "net_us": 47.0}) for s in facts.samples()]
    candidate = facts.candidate("class ModelNew: repeated")
    ledger.add_verdict(facts.correct(candidate), [*facts.samples(), *again])
    row = only(ledger.sql("from reliability"))
    assert (row["device_kind"], row["num_measured"]) == ("cpu", 4)
    # every reference spreads by 2.5 / 23.5 and every candidate by 3.5 / 23.5
    assert row["median_spread"] == pytest.approx(3.0 / 23.5)
    assert row["p95_spread"] == pytest.approx(3.5 / 23.5)
    assert (row["num_repeated"], row["num_null_tests"]) == (1, 0)
    assert row["median_repeat"] == row["p95_repeat"] == pytest.approx(0.6931, abs=1e-4)  # ln 2


def test_null_tests_are_references_judged_as_candidates(ledger, facts):
    source = "class Model: '''Models, naïve'''\nModel()\n"
    problem = Problem.model_validate({**facts.problem().model_dump(), "source": source})
    ledger.add_problem(problem, Admission(problem_id=problem.id, admitted=True))
    own = facts.candidate(problem.null_source).model_copy(update={"problem_id": problem.id})
    verdict = facts.correct(own, 1.2).model_copy(update={"problem_id": problem.id})
    ledger.add_verdict(verdict, [])
    row = only(ledger.sql("from null_tests"))
    assert (row["candidate_id"], row["certified"], row["is_false_gain"]) == (own.id, 1.2, True)
    trust = only(ledger.sql("from reliability"))
    assert (trust["num_null_tests"], trust["num_false_gains"]) == (1, 1)
    assert trust["null_lowest"] == trust["null_highest"] == pytest.approx(1.25)


# --- descent of candidates ------------------------------------------------------------------------


def test_lineage_follows_exemplars_back_to_the_first(ledger, chain):
    first, second, third = (candidate.id for candidate in chain)
    frame = ledger.sql("from lineage(?)", [third])
    assert frame.columns == ["generation", "candidate_id", "shown_to", "authors", "certified"]
    found = {row[1]: (row[0], row[2], row[3], row[4]) for row in frame.iter_rows()}
    assert found == {
        third: (0, [], ["openai"], 2.0),
        second: (1, [third], ["replay"], 1.5),
        first: (1, sorted([second, third]), ["replay"], 1.1),
    }


def test_lineage_counts_generations(ledger, facts, chain):
    last = facts.candidate("class ModelNew: last")
    ledger.add_completion(facts.completion("f", shown=(chain[1].id,)), last, None)
    found = dict(ledger.sql("select candidate_id, generation from lineage(?)", [last.id]).rows())
    assert found == {last.id: 0, chain[1].id: 1, chain[0].id: 2}


def test_lineage_ends_when_candidates_descend_from_each_other(ledger, facts, chain):
    again = facts.completion("again", shown=(chain[1].id,))
    ledger.add_completion(again, chain[0], None)
    assert ledger.sql("from lineage(?)", [chain[1].id]).height == 2


def test_exemplar_uses_counts_positions_from_one(ledger, chain):
    found = ledger.sql(
        "select position, candidate_id from exemplar_uses where completion_id = 'c' order by 1"
    )
    assert found.rows() == [(1, chain[1].id), (2, chain[0].id)]


def test_progress_in_sql_is_progress_in_training():
    assert f"{IMPROVED:g} * greatest(best_shown, {REFERENCE_SCORE:g})" in VIEWS


def test_progress_is_measured_against_the_best_exemplar_shown(ledger, facts):
    shown = [
        facts.candidate("class ModelNew: a = f(1)"),
        facts.candidate("class ModelNew: b = g(1)"),
    ]
    for key, candidate in zip(("a", "b"), shown, strict=True):
        ledger.add_completion(facts.completion(key), candidate, None)
    copy = facts.candidate("class ModelNew:\n    other = g(1)  # the same")
    slower, better = facts.candidate("class ModelNew: c"), facts.candidate("class ModelNew: d")
    answers = {"copy": (copy, 3.0), "slower": (slower, 2.0), "better": (better, 2.1)}
    for key, (candidate, certified) in answers.items():
        completion = facts.completion(key, shown=tuple(each.id for each in shown))
        scored = completion.model_copy(update={"exemplar_scores": (1.5, 2.0)})
        ledger.add_completion(scored, candidate, None)
        ledger.add_verdict(facts.correct(candidate, certified), [])
    none = facts.completion("none", shown=(shown[0].id,))
    ledger.add_completion(none.model_copy(update={"exemplar_scores": (1.5,)}), None, "no code")
    found = ledger.sql(
        "select completion_id, reward, best_shown, is_copy, is_progress from progress order by all"
    )
    assert found.rows() == [
        ("better", 2.1, 2.0, False, True),
        ("copy", 3.0, 2.0, True, False),
        ("none", 0.0, 1.5, False, False),
        ("slower", 2.0, 2.0, False, False),
    ]


# --- runs ----------------------------------------------------------------------------------------


def test_a_run_has_a_beginning_an_end_and_a_number_of_facts(tmp_path, facts):
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("filter", run="abc")
        row = only(ledger.sql("from runs"))
        assert (row["stage"], row["run"], row["num_starts"]) == ("filter", "abc", 1)
        assert (row["ended_at"], row["num_facts"]) == (None, None)
        ledger.add_completion(facts.completion("a"), facts.candidate(), None)
        ledger.export()
        row = only(ledger.sql("from runs"))
        assert row["started_at"] < row["ended_at"]
        assert row["num_facts"] == ledger.sql("from members").height == 2


def test_a_resumed_run_keeps_its_row_and_another_run_has_its_own(tmp_path):
    for run in ("first", "first", "second"):
        with Ledger.open(tmp_path) as ledger:
            ledger.begin("rl", run=run)
    with Ledger.open(tmp_path) as ledger:
        rows = ledger.sql("select run, num_starts from runs order by started_at").rows()
    assert rows == [("first", 2), ("second", 1)]


@pytest.mark.slow
def test_runs_outlive_the_database_and_are_in_no_shard(tmp_path, facts):
    for _ in range(2):
        with Ledger.open(tmp_path) as ledger:
            ledger.begin("filter")
            facts.fill(ledger)
            shard = ledger.export()
            before = ledger.sql("from runs order by all").rows()
    assert not (shard / "runs.parquet").exists()
    (tmp_path / ".ledger.duckdb").unlink()
    with Ledger.open(tmp_path) as again:
        assert again.sql("from runs order by all").rows() == before
        assert len(before) == 2


def test_a_policy_s_answers_are_named_by_the_stage_that_asked(ledger, facts):
    candidate = facts.candidate("class ModelNew: x = 9")
    answer = facts.completion("p", provider="policy", stage="rl")
    ledger.add_completion(answer, candidate, None)
    ledger.add_verdict(facts.correct(candidate, 5.0), [])
    for view in ("best", "sources"):
        row = only(ledger.sql(f"from {view}"), candidate_id=candidate.id)
        assert row["authors"] == ["policy (rl)"]
    for view in ("outcomes", "answers"):
        row = only(ledger.sql(f"from {view}"), candidate_id=candidate.id)
        assert row["author"] == "policy (rl)"
    assert only(ledger.sql("from answers"), completion_id="a")["author"] == "replay"


def test_bytes_that_are_no_text_are_shown_and_hide_no_other_source(ledger, facts):
    candidate = facts.candidate("class ModelNew: x = '\udcff'")
    ledger.add_candidate(candidate)
    frame = ledger.sql("from sources")
    assert frame.height == 5
    shown = only(frame, candidate_id=candidate.id)["source"]
    assert shown.startswith("class ModelNew: x = ")
    assert "\\xED\\xB3\\xBF" in shown


def test_stage_runs_have_times_and_durations(ledger):
    row = only(ledger.sql("from stage_runs"), stage="filter")
    assert isinstance(row["started_at"], datetime.datetime)
    assert (row["ended_at"], row["took_s"], row["is_latest"]) == (None, None, True)
    ledger.export()
    row = only(ledger.sql("from stage_runs"), stage="filter")
    assert row["took_s"] == (row["ended_at"] - row["started_at"]).total_seconds()


def test_notes_of_the_screen_are_told_apart_from_cheats(ledger, facts):
    ledger.add_ruling(facts.ruling(facts.candidate("class ModelNew: x = 0")))
    assert ledger.sql("select distinct source, is_advisory from flags order by source").rows() == [
        ("person", False),
        ("screen", True),
    ]


SORTED = {
    "best": ("certified", True),
    "leaderboard": ("geometric_mean", True),
    "success": ("stage", False),
    "cost": ("cost_usd", True),
    "providers": ("provider", False),
}


@pytest.mark.parametrize("view", SORTED)
def test_a_summary_is_sorted(ledger, facts, view):
    slower = facts.problem("gelu", Split.HELDOUT)
    ledger.add_verdict(
        facts.correct(Candidate(problem_id=slower.id, source="class ModelNew: 1"), 1.05), []
    )
    answered = facts.completion("q", provider="another", stage="early")
    candidate = Candidate(problem_id=slower.id, source="class ModelNew: 1")
    ledger.add_completion(answered.model_copy(update={"problem_id": slower.id}), candidate, None)
    column, is_falling = SORTED[view]
    values = ledger.sql(f"from {view}")[column].to_list()
    assert values == sorted(values, reverse=is_falling)


# --- one row a candidate, one row an answer -------------------------------------------------------


def test_the_final_verdict_of_a_candidate_is_the_latest_that_was_timed(ledger, facts):
    candidate = facts.candidate("class ModelNew: judged = 3")
    checked = facts.protocol.model_copy(update={"timing": False})
    ledger.add_protocol(checked)
    verdicts = [
        facts.correct(candidate, 1.3),
        facts.correct(candidate, 1.4).model_copy(
            update={"device_kind": "another", "judged_at": "2026-02-01T00:00:00Z"}
        ),
        facts.failed(candidate).model_copy(
            update={"protocol_id": checked.id, "judged_at": "2026-03-01T00:00:00Z"}
        ),
    ]
    for verdict in verdicts:
        ledger.add_verdict(verdict, [])
    assert ledger.sql("from judged").filter(candidate_id=candidate.id).height == 3
    found = only(ledger.sql("from final_verdicts"), candidate_id=candidate.id)
    assert (found["status"], found["certified"]) == ("correct", 1.4)


def test_an_answer_has_one_row_with_its_outcome(ledger, facts):
    candidate = facts.candidate("class ModelNew: n = b")
    ledger.add_completion(facts.completion("wrong"), candidate, None)
    ledger.add_verdict(facts.failed(candidate, "NameError: name 'b' is not defined"), [])
    ledger.add_completion(facts.completion("prose"), None, "no code")
    found = only(ledger.sql("from answers"), completion_id="wrong")
    assert (found["outcome"], found["reason_kind"]) == ("crashed", "NameError")
    assert only(ledger.sql("from answers"), completion_id="prose")["outcome"] == "no_source"
    assert only(ledger.sql("from answers"), completion_id="a")["outcome"] == "correct"
    assert only(ledger.sql("from outcomes"), completion_id="wrong")["reason_kind"] == "NameError"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("wrong output: input 3 (own): element 5: 1, not 2", "wrong output"),
        (
            "an output of torch.float32 (2, 4) where the reference",
            "an output of another type or shape",
        ),
        ("an output of type NoneType, not a tensor", "an output of another type or shape"),
        (
            "correct only in the looser precision class tf32, not strict",
            "correct only in a looser precision class",
        ),
        ("OSError: [Errno 30] Read-only file system", "OSError"),
        ("did not finish loading in 60 s", "did not finish loading in N s"),
        ("cached_output: call 1 returned the answer to call 0", "cached_output"),
    ],
)
def test_the_kind_of_a_reason_has_no_numbers_and_details(ledger, reason, kind):
    assert ledger.sql("select kind_of(?) as kind", [reason])["kind"].to_list() == [kind]


def test_a_sign_that_made_a_verdict_hacked_is_decisive(ledger, facts):
    candidate = facts.candidate("class ModelNew: cached = 1")
    signs = (
        HackFlag(kind="cached_output", source=FlagSource.GUARD, evidence="call 1"),
        HackFlag(kind="pointer_cache", source=FlagSource.SCREEN, evidence="line 1"),
    )
    verdict = facts.failed(candidate).model_copy(update={"status": Status.HACKED, "flags": signs})
    ledger.add_verdict(verdict, [])
    rows = ledger.sql("from flags").filter(candidate_id=candidate.id)
    assert dict(zip(rows["kind"], rows["is_decisive"], strict=True)) == {
        "cached_output": True,
        "pointer_cache": False,
    }
    ledger.add_ruling(facts.ruling(facts.candidate("class ModelNew: x = 0")))
    assert ledger.sql("from flags").filter(source="person")["is_decisive"].to_list() == [True]
