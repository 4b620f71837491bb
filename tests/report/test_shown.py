"""Tests of the choice of candidates that are fetched for the page."""

from __future__ import annotations

import pytest

from cudal1.report.page import page_html
from cudal1.report.shown import candidates


def test_an_empty_report_shows_no_candidate(empty):
    assert candidates(empty) == []


@pytest.mark.slow
def test_every_source_on_the_page_belongs_to_a_shown_candidate(made):
    rows = made.rows()
    shown = set(candidates(made.build(rows)))
    full = page_html(made.build(rows))
    rows["candidates"] = [row for row in rows["candidates"] if row["candidate_id"] in shown]
    rows["samples"] = [row for row in rows["samples"] if row["candidate_id"] in shown]
    assert page_html(made.build(rows)) == full


def test_the_choice_does_not_depend_on_fetched_data(made):
    rows = made.rows()
    first = candidates(made.build(rows))
    for name in ("candidates", "samples", "details", "ancestors"):
        rows[name] = []
    assert candidates(made.build(rows)) == first


def test_the_best_and_the_closest_gain_are_shown(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [
                made.verdict("p11", "even", 1.0),
                made.verdict("p11", "close", 1.05),
                made.verdict("p11", "far", 9.0),
            ],
        }
    )
    assert candidates(given) == ["close", "far"]
