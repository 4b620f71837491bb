"""Tests of the section of each problem."""

from __future__ import annotations

import pytest

from cudal1.report.limits import NUM_AUTHORS, NUM_PROBLEMS
from cudal1.report.problems import problem_exhibits, with_sections


def exhibits(given):
    return [exhibit for level in problem_exhibits(given).levels for exhibit in level.exhibits]


@pytest.mark.slow
def test_every_admitted_problem_has_a_section_in_the_suites_order(realistic):
    shown = exhibits(realistic)
    admitted = realistic.problems.filter(realistic.problems["admitted"])
    assert len(shown) == admitted.height
    assert [exhibit.key for exhibit in shown] == sorted(exhibit.key for exhibit in shown)


def test_a_section_shows_the_outcomes_of_the_answers(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a"), made.verdict("p11", "b", status="timed_out")],
            "completions": [
                made.answer("p11", "a"),
                made.answer("p11", "b", number=1),
                made.answer("p11", None, number=2),
            ],
        }
    )
    assert exhibits(given)[0].tried == "3 answers: 1 correct, 1 timed out, 1 no source."


def test_the_reference_is_shown_without_any_success(made):
    given = made.build({"problems": [made.problem(source="class Model: pass\n")]})
    (exhibit,) = exhibits(given)
    assert exhibit.reference.runs[0].text == "class Model: pass\n"
    assert (exhibit.best, exhibit.certified, exhibit.verdict) == (None, None, ())


def test_authors_are_listed_by_their_best(made):
    names = [f"a{i}" for i in range(NUM_AUTHORS + 2)]
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", name, 1 + i / 10) for i, name in enumerate(names)],
            "completions": [
                made.answer("p11", name, stage=f"generate@{name}", provider=name) for name in names
            ],
        }
    )
    table = exhibits(given)[0].by_author
    assert [row.cells[0] for row in table.rows] == names[::-1][:NUM_AUTHORS]
    assert "2 further authors" in table.caption


def test_a_large_suite_shows_the_largest_speedups_and_counts_the_others(made):
    numbers = range(1, NUM_PROBLEMS + 6)
    given = made.build(
        {
            "problems": [made.problem(number) for number in numbers],
            "verdicts": [
                made.verdict(f"p1{number}", f"c{number}", 1.0 + number / 100) for number in numbers
            ],
        }
    )
    found = problem_exhibits(given)
    assert found.num_left_out == 5
    assert with_sections(given)["number"].to_list() == list(numbers)[5:]


def test_invariants_of_a_problems_inputs_are_shown_and_may_be_unknown(made):
    told = ["input 0: lower triangular"]
    given = made.build({"problems": [made.problem(1) | {"invariants": told}, made.problem(2)]})
    assert [exhibit.invariants for exhibit in exhibits(given)] == [tuple(told), ()]
