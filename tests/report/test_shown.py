"""Which candidates are fetched for the page."""

from __future__ import annotations

from cudal1.report.page import page_html
from cudal1.report.shown import candidates


def test_nobody_is_shown_of_nothing(empty):
    assert candidates(empty) == []


def test_every_source_on_the_page_is_of_those_that_are_shown(made):
    rows = made.rows()
    shown = set(candidates(made.build(rows)))
    full = page_html(made.build(rows))
    rows["candidates"] = [row for row in rows["candidates"] if row["candidate_id"] in shown]
    rows["samples"] = [row for row in rows["samples"] if row["candidate_id"] in shown]
    assert page_html(made.build(rows)) == full


def test_who_is_shown_does_not_depend_on_what_was_fetched(made):
    rows = made.rows()
    first = candidates(made.build(rows))
    for name in ("candidates", "samples", "details", "ancestors"):
        rows[name] = []
    assert candidates(made.build(rows)) == first


def test_the_best_and_the_closest_gain_are_shown(made):
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [
            made.verdict("p11", "even", 1.0), made.verdict("p11", "close", 1.05),
            made.verdict("p11", "far", 9.0),
        ],
    })  # fmt: skip
    assert candidates(given) == ["close", "far"]
