# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

import pytest

from cudal1.report.tables import tallies
from cudal1.report.tables.cells import NULL_TEST
from cudal1.report.tables.table import RowKind


def rows_of(table) -> list[dict[str, str]]:
    return [dict(zip(table.columns, row.cells, strict=True)) for row in table.rows]


def test_a_provider_s_row_holds_the_outcomes_of_its_answers(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a", 2.0), made.verdict("p11", "b", status="hacked")],
            "completions": [
                made.answer("p11", candidate, number=number)
                for number, candidate in enumerate(["a", "a", "b", None])
            ],
        }
    )
    assert rows_of(tallies.provider_table(given)) == [
        {
            "Author": "fuser",
            "Asked": "4",
            "Extracted": "3 (75 %)",
            "Correct": "2 (50 %)",
            "Hacked": "1",
            "Problems solved": "1 of 1",
            "Best": "2.00×",
        }
    ]


def test_outcomes_add_up_to_the_answers(realistic):
    for row in rows_of(tallies.outcome_table(realistic)):
        counts = [int(cell.replace(",", "")) for name, cell in row.items() if name != "Stage"]
        assert counts[0] == sum(counts[1:])


def test_an_advisory_flag_decides_nothing(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a"), made.verdict("p11", "b", status="hacked")],
            "flags": [
                made.flag("a", "stream_use", source="screen"),
                made.flag("b", "cached_output"),
            ],
        }
    )
    rows = rows_of(tallies.hack_table(given))
    assert [(row["Kind"], row["Decides"]) for row in rows] == [
        ("cached_output", "yes"),
        ("stream_use", "no"),
    ]


def test_flags_of_another_protocol_are_left_out(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "b", status="hacked")],
            "flags": [{**made.flag("b"), "protocol_id": "another"}],
        }
    )
    assert not tallies.hack_table(given).rows


def test_an_unstable_measurement_is_counted(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [
                made.verdict("p11", "a", 1.0, is_stable=False, bucket_variance=0.01),
                made.verdict("p11", "b", 4.0, is_confirmed=True),
            ],
        }
    )
    table = tallies.reliability_table(given)
    values = {row["Quantity"]: row["Candidates"] for row in rows_of(table)}
    assert values["Unstable"] == "1 (50 %)"
    assert values["… of which confirmed"] == "1 (100 %)"


def test_candidates_of_a_looser_class_are_shown_separately(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [
                made.verdict("p11", "a", 2.0),
                made.verdict("p11", "b", 1.0),
                made.verdict("p11", "c", status="incorrect", precision="half"),
                made.verdict("p11", "d", status="incorrect"),
            ],
        }
    )
    assert rows_of(tallies.precision_table(given)) == [
        {
            "Class": "strict",
            "Candidates": "2",
            "Correct": "2 (100 %)",
            "> 1.01×": "1 (50 %)",
            "Best": "2.00×",
        },
        {
            "Class": "half",
            "Candidates": "1",
            "Correct": "0 (0 %)",
            "> 1.01×": "0 (0 %)",
            "Best": "–",
        },
    ]


def nulls(*changes):
    """Return a null test with a clean row per argument; each argument changes its row."""
    hoped = {
        "status": "correct",
        "precision": "strict",
        "speedup": 1.0,
        "certified": 1.0,
        "num_quads": 9,
        "bucket_variance": 0.0001,
        "is_stable": True,
        "is_confirmed": None,
    }
    return [{"problem_id": f"p1{n}", **hoped, **change} for n, change in enumerate(changes)]


NOT_CORRECT = {"speedup": None, "certified": None, "is_stable": None, "bucket_variance": None}
HACKED = {"status": "hacked", "precision": None, **NOT_CORRECT}


def beside(made, *changes, **more):
    """Return two candidates, one of them a cheat, beside such a null test."""
    return made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a", 2.0), made.verdict("p11", "b", status="hacked")],
            "completions": [made.answer("p11", "a", stage="x"), made.answer("p11", "b", stage="x")],
            "flags": [made.flag("b")],
            "null_test": nulls(*changes),
            **more,
        }
    )


def null_rows_of(table):
    """Return the table's rows of the null test, which come last."""
    kinds = [row.kind for row in table.rows]
    assert kinds == sorted(kinds, key=lambda kind: kind is RowKind.NULL_TEST)
    return [row for row, kind in zip(rows_of(table), kinds, strict=True) if kind is not kinds[0]]


def test_the_null_test_stands_beside_files_with_the_outcomes_of_its_references(made):
    given = beside(made, {}, {"certified": 1.2}, {"status": "incorrect", **NOT_CORRECT})
    table = tallies.file_table(given)
    assert null_rows_of(table) == [
        {
            "File": "Null test",
            "Candidates": "3",
            "correct": "2",
            "hacked": "0",
            "incorrect": "1",
            "Problems solved": "2 of 3",
            "Best": "1.20×",
        }
    ]
    assert NULL_TEST in table.caption


def test_the_null_test_stands_beside_precision_by_the_class_of_its_references(made):
    given = beside(made, {}, {"certified": 1.2}, {"precision": "half"}, HACKED)
    table = tallies.precision_table(given)
    assert null_rows_of(table) == [
        {
            "Class": "Null test, strict",
            "Candidates": "2",
            "Correct": "2 (100 %)",
            "> 1.01×": "1 (50 %)",
            "Best": "1.20×",
        },
        {
            "Class": "Null test, half",
            "Candidates": "1",
            "Correct": "1 (100 %)",
            "> 1.01×": "0 (0 %)",
            "Best": "1.00×",
        },
    ]
    assert NULL_TEST in table.caption


def test_the_null_test_stands_beside_reliability(made):
    given = beside(made, {}, {"is_stable": False}, {"is_confirmed": False}, HACKED)
    table = tallies.reliability_table(given)
    values = {row["Quantity"]: row["Null test"] for row in rows_of(table)}
    assert values == {
        "Measurements": "3",
        "Median spread of bucket medians": "0.0100",
        "90th percentile of the spread": "0.0100",
        "Unstable": "1 (33 %)",
        "Large claims measured again in fresh processes": "1",
        "… of which confirmed": "0 (0 %)",
        "Median number of quads": "9",
    }
    assert NULL_TEST in table.caption


def test_references_judged_as_cheats_stand_beside_the_cheats(made):
    table = tallies.hack_table(beside(made, {}, HACKED, {}))
    (row,) = null_rows_of(table)
    assert (row["Kind"], row["Candidates"]) == ("Null test", "1 of 3")
    assert tallies.NULL_FLAGS in table.caption


TABLES = (
    tallies.file_table,
    tallies.precision_table,
    tallies.reliability_table,
    tallies.hack_table,
)


@pytest.mark.parametrize("build", TABLES)
def test_without_a_null_test_the_table_says_so(made, build):
    table = build(beside(made))
    assert "Null test" not in str(table.rows) + str(table.columns)
    assert "No null test was run on cpu" in table.caption


@pytest.mark.parametrize("build", TABLES)
def test_a_null_test_without_candidates_makes_no_table(made, build):
    assert not build(made.build({"null_test": nulls({})})).rows
