"""Tests of the text of a verdict."""

# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

import pytest

from cudal1.measurement import Doubt
from cudal1.report import facts
from cudal1.report.words import DOUBTS, in_words, lineage
from cudal1.verdict import RESTRICTING, SEEN

DETAILS = {
    "candidate_id": "c",
    "lower": 1.9,
    "upper": 2.3,
    "alpha": 0.01,
    "doubt": None,
    "bucket_medians": [2.0] * 7,
    "floor_us": 45.0,
    "num_inputs": 129,
    "max_relative_l2": 3e-8,
    "second_opinion": "off",
    "judged_at": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def told(made):
    def told(certified: float = 2.0, *, verdict=None, **changes: object) -> str:
        given = made.build(
            {
                "problems": [made.problem()],
                "verdicts": [made.verdict("p11", "c", certified, **(verdict or {}))],
                "details": [DETAILS | changes],
            }
        )
        return " ".join(in_words(facts.best(given).row(0, named=True), given))

    return told


def test_a_claim_comes_with_its_error_and_its_interval(told):
    words = told()
    assert "certified at 2.00×" in words
    assert "false with probability 0.01 at most" in words
    assert "within 1.90× and 2.30×" in words
    assert "129 inputs" in words


def test_a_verdict_without_a_claim_has_no_probability_of_being_false(told):
    assert "probability" not in told(1.0)


@pytest.mark.parametrize("doubt", list(Doubt))
def test_every_doubt_has_its_words(told, doubt):
    assert DOUBTS[doubt] in told(doubt=doubt.value)


def test_unsteady_buckets_and_failed_confirmations_are_mentioned(told):
    words = told(1.0, verdict={"is_stable": False, "is_confirmed": False})
    assert "not steady" in words
    assert "did not confirm" in words


def test_a_verdict_without_details_has_a_text_without_them(made):
    given = made.build({"problems": [made.problem()], "verdicts": [made.verdict("p11", "c", 2.0)]})
    words = " ".join(in_words(facts.best(given).row(0, named=True), given))
    assert "certified at 2.00×" in words
    assert "None" not in words


def test_descent_names_the_fastest_exemplars_and_counts_the_others(made):
    def ancestor(name: str, generation: int, certified: float) -> dict[str, object]:
        return {
            "descendant_id": "c",
            "candidate_id": name,
            "generation": generation,
            "certified": certified,
        }

    given = made.build(
        {
            "problems": [made.problem()],
            "completions": [made.answer("p11", "b")],
            "ancestors": [ancestor("a", 1, 1.2), ancestor("b", 1, 1.9), ancestor("z", 2, 1.1)],
        }
    )
    first, behind = lineage("c", given, at_most=1)
    assert first == "Exemplars that its prompts showed: b (1.90×, by fuser) and 1 more."
    assert behind == "Behind those stand 1 earlier ones, in 2 generations."


def test_a_candidate_of_a_plain_prompt_has_no_descent(made):
    assert lineage("c", made.build({}), at_most=3) == []


def test_restrictions_of_a_candidates_use_have_the_words_of_the_command_judge(told):
    seen = {"follows_weights": False, "fresh_outputs": False, "leaves_inputs": False}
    words = told(verdict=seen)
    assert "Restricted in use: " + "; ".join(SEEN[name, False] for name in RESTRICTING) in words


@pytest.mark.parametrize("value", [True, None])
def test_an_unknown_property_restricts_nothing(told, value):
    assert "Restricted" not in told(verdict=dict.fromkeys(RESTRICTING, value))
