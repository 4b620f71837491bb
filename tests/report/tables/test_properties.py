"""Tests of the table of correct candidates' properties."""

from __future__ import annotations

import pytest

from cudal1.protocol import Contract
from cudal1.report.tables.cells import NULL_TEST
from cudal1.report.tables.properties import MEANINGS, OWED, property_table
from cudal1.verdict import Properties


def column(table, label: str) -> dict[str, str]:
    """Return the cells below a heading, by their rows' first cells."""
    place = table.columns.index(label)
    return {row.cells[0]: row.cells[place] for row in table.rows}


def two_stages(made, **more):
    """Return three correct candidates and a cheat; both stages use the second, twice."""
    return made.build(
        {
            "problems": [made.problem()],
            "verdicts": [
                made.verdict("p11", "a", follows_weights=True, fresh_outputs=False),
                made.verdict("p11", "b", follows_weights=False, fresh_outputs=False),
                made.verdict("p11", "c", follows_weights=None, fresh_outputs=True),
                made.verdict("p11", "d", status="hacked"),
            ],
            "completions": [
                *(made.answer("p11", name) for name in "abd"),
                *(made.answer("p11", "b", stage="rl", number=n) for n in range(2)),
                made.answer("p11", "c", stage="rl"),
            ],
            **more,
        }
    )


def test_each_candidate_counts_once_per_stage_as_yes_no_or_unknown(made):
    table = property_table(two_stages(made))
    assert table.columns == ("Property", "all", "generate@fuser", "rl")
    parts = [column(table, label) for label in table.columns[1:]]
    assert [part["Correct candidates"] for part in parts] == ["3", "2", "2"]
    follows, lasts = ([part[MEANINGS[name]] for part in parts] for name in list(MEANINGS)[:2])
    assert follows == ["1 / 1 / 1", "1 / 1 / 0", "0 / 1 / 1"]
    assert lasts == ["1 / 2 / 0", "0 / 2 / 0", "1 / 1 / 0"]


def test_every_property_has_a_row_with_its_meaning(made):
    assert list(MEANINGS) == list(Properties.model_fields)
    rows = [row.cells[0] for row in property_table(two_stages(made)).rows]
    assert rows == ["Correct candidates", *MEANINGS.values()]


def test_the_null_test_stands_beside_the_candidates(made):
    told = {"speedup": 1.0, "certified": 1.0, "follows_weights": True}
    null = [
        {"problem_id": "p11", "status": "correct", **told},
        {"problem_id": "p12", "status": "correct", **told, "follows_weights": False},
        {"problem_id": "p13", "status": "incorrect"},
    ]
    table = property_table(two_stages(made, null_test=null))
    of_null = column(table, "Null test")
    assert of_null["Correct candidates"] == "2"
    assert of_null[MEANINGS["follows_weights"]] == "1 / 1 / 0"
    assert NULL_TEST in table.caption


def test_a_null_test_without_candidates_makes_no_table(made):
    null = [{"problem_id": "p11", "status": "correct", "speedup": 1.0, "certified": 1.0}]
    assert not property_table(made.build({"null_test": null})).rows


@pytest.mark.parametrize("contract", list(Contract))
def test_the_caption_says_what_a_no_means_under_the_contract(made, contract):
    protocol = made.build({}).provenance.protocol.model_copy(update={"contract": contract})
    caption = property_table(made.build({}, protocol=protocol)).caption
    assert f"contract {contract.value}, mode constructed" in caption
    assert OWED[contract] in caption


def test_an_untimed_candidate_counts(made):
    checks = made.build({}).provenance.protocol.checks_only().id
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a", None, protocol_id=checks, leaves_inputs=False)],
            "completions": [made.answer("p11", "a")],
        }
    )
    assert column(property_table(given), "generate@fuser")[MEANINGS["leaves_inputs"]] == "0 / 1 / 0"
