"""Tests of the reviewer's opinions as readers see them."""

from __future__ import annotations

from typing import Any

from cudal1.report.tables.second_opinions import second_opinion_table


def opinion(candidate_id: str, trigger: str | None, **changes: Any) -> dict[str, Any]:
    return {
        "candidate_id": candidate_id,
        "trigger": trigger,
        "is_cheat": False,
        "kind": "none",
        "ruling": None,
        **changes,
    }


def test_without_a_reviewer_the_report_says_so(empty):
    table = second_opinion_table(empty)
    assert table.rows == ()
    assert "off" in table.nothing_yet


def test_opinions_are_counted_by_their_trigger(made):
    given = made.build(
        {
            "second_opinions": [
                opinion("a", "certified 4.00x, at or above 3x", is_cheat=True, ruling=True),
                opinion("b", "certified 9.00x, at or above 3x", is_cheat=True, ruling=False),
                opinion("c", "certified 1.60x, 1.6 times the record"),
                opinion("d", "the source shows odd_import", is_cheat=None),
                opinion("e", "drawn at random among the gains"),
                opinion("f", "same code as 0a"),
                opinion("g", None, is_cheat=None),
            ]
        },
        reviewer="some-model",
    )
    table = second_opinion_table(given)
    found = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert found["large gain"] == ("2", "2", "0", "0", "1", "1")
    assert found["jump over the record"] == ("1", "0", "1", "0", "0", "0")
    assert found["gain with a sign in the source"] == ("1", "0", "0", "1", "0", "0")
    assert found["a gain drawn at random"][0] == found["same code as another"][0] == "1"
    assert found["not known: it could not be asked"] == ("1", "0", "0", "1", "0", "0")
    assert found["all"][0] == "7"
    assert "some-model" in table.caption
