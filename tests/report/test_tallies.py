# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from cudal1.report import tallies


def rows_of(table) -> list[dict[str, str]]:
    return [dict(zip(table.columns, row.cells, strict=True)) for row in table.rows]


def test_a_provider_is_told_by_what_became_of_its_answers(made):
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [made.verdict("p11", "a", 2.0), made.verdict("p11", "b", status="hacked")],
        "completions": [
            made.answer("p11", candidate, number=number)
            for number, candidate in enumerate(["a", "a", "b", None])
        ],
    })  # fmt: skip
    assert rows_of(tallies.provider_table(given)) == [{
        "Author": "fuser", "Asked": "4", "Extracted": "3 (75 %)", "Correct": "2 (50 %)",
        "Hacked": "1", "Problems solved": "1 of 1", "Best": "2.00×",
    }]  # fmt: skip


def test_outcomes_add_up_to_the_answers(realistic):
    for row in rows_of(tallies.outcome_table(realistic)):
        counts = [int(cell.replace(",", "")) for name, cell in row.items() if name != "Stage"]
        assert counts[0] == sum(counts[1:])


def test_an_advisory_flag_does_not_decide(made):
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [made.verdict("p11", "a"), made.verdict("p11", "b", status="hacked")],
        "flags": [made.flag("a", "stream_use", source="screen"), made.flag("b", "cached_output")],
    })  # fmt: skip
    rows = rows_of(tallies.hack_table(given))
    assert [(row["Kind"], row["Decides"]) for row in rows] == [
        ("cached_output", "yes"), ("stream_use", "no"),
    ]  # fmt: skip


def test_flags_of_another_protocol_are_left_out(made):
    given = made.build({
        "problems": [made.problem()], "verdicts": [made.verdict("p11", "b", status="hacked")],
        "flags": [{**made.flag("b"), "protocol_id": "another"}],
    })  # fmt: skip
    assert not tallies.hack_table(given).rows


def test_an_unstable_measurement_is_counted(made):
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [
            made.verdict("p11", "a", 1.0, is_stable=False, bucket_variance=0.01),
            made.verdict("p11", "b", 4.0, is_confirmed=True),
        ],
    })  # fmt: skip
    values = {row["Quantity"]: row["Value"] for row in rows_of(tallies.reliability_table(given))}
    assert values["Unstable, so certified at 1×"] == "1 (50 %)"
    assert values["… of which confirmed"] == "1 (100 %)"


def test_candidates_of_a_looser_class_are_shown_apart(made):
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [
            made.verdict("p11", "a", 2.0), made.verdict("p11", "b", 1.0),
            made.verdict("p11", "c", status="incorrect", precision="half"),
            made.verdict("p11", "d", status="incorrect"),
        ],
    })  # fmt: skip
    assert rows_of(tallies.precision_table(given)) == [
        {"Class": "strict", "Candidates": "2", "Correct": "2 (100 %)", "> 1.01×": "1 (50 %)",
         "Best": "2.00×"},
        {"Class": "half", "Candidates": "1", "Correct": "0 (0 %)", "> 1.01×": "0 (0 %)",
         "Best": "–"},
    ]  # fmt: skip
