"""Tests of the table of the winners' techniques."""

# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from cudal1.report.page import page_html
from cudal1.report.tables.techniques import technique_table


def given(made, **more):
    """Return two problems with three winners and a slower candidate."""
    certified = {"a": ("p11", 2.0), "b": ("p11", 3.0), "c": ("p12", 1.5), "d": ("p12", 1.0)}
    techniques = [("a", "fusion"), ("b", "fusion"), ("b", "triton"), ("d", "fusion")]
    return made.build(
        {
            "problems": [made.problem(1), made.problem(2, name="gelu")],
            "verdicts": [made.verdict(p, name, value) for name, (p, value) in certified.items()],
            "completions": [made.answer(p, name) for name, (p, _) in certified.items()],
            "techniques": [{"candidate_id": c, "technique": t} for c, t in techniques],
            **more,
        }
    )


def test_a_winner_counts_for_each_of_its_techniques(made):
    rows = {row.cells[0]: row.cells[2:] for row in technique_table(given(made)).rows}
    assert rows == {
        "fusion": ("2", "1", "2.50×"),
        "triton": ("1", "1", "3.00×"),
        "none of these": ("1", "1", "1.50×"),
        "all winners": ("3", "2", "2.00×"),
    }


def test_candidates_without_an_answer_are_no_winners(made):
    assert technique_table(given(made, completions=[])).rows == ()


def test_each_technique_in_the_table_has_a_meaning(made):
    assert all(row.cells[1] for row in technique_table(given(made)).rows[:2])


def test_a_report_without_techniques_says_so(empty):
    assert technique_table(empty).rows == ()


def test_the_page_names_the_techniques_of_the_best_and_the_command_that_shows_it(made):
    page = page_html(given(made))
    best = page[page.index('id="problems"') :]
    assert '<span class="mark quiet">triton</span>' in best
    assert "<code>cudal1 show b</code>" in best
