# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from cudal1.report import tables


def cells_of(table, first: str) -> dict[str, str]:
    row = next(row for row in table.rows if row.cells[0] == first)
    return dict(zip(table.columns, row.cells, strict=True))


def test_a_null_test_that_fails_is_seen(made):
    given = made.build({"null_test": [
        {"problem_id": "a", "status": "correct", "speedup": 1.1, "certified": 1.05},
        {"problem_id": "b", "status": "incorrect", "speedup": None, "certified": None},
    ]})  # fmt: skip
    row = cells_of(tables.null_table(given), "reference as candidate")
    assert row["Correct"] == "1 (50 %)"
    assert row["Max certified"] == "1.05×"
    assert row["> 1.01×"] == "1"


def test_a_policy_is_examined_on_held_out_problems_only(made):
    given = made.build({
        "problems": [made.problem(1), made.problem(2, split="heldout")],
        "verdicts": [
            made.verdict("p11", "good", 2.0), made.verdict("p12", "bad", status="crashed"),
        ],
        "completions": [
            made.answer("p11", "good", stage="sft", provider="policy"),
            made.answer("p12", "bad", stage="sft", provider="policy"),
        ],
    })  # fmt: skip
    row = cells_of(tables.policy_table(given), "sft")
    assert row["Held-out success"].startswith("0 %")
    assert row["Held-out reward"] == "0.000"
    assert row["Training success"] == "100 %"
    assert row["Training reward"] == "2.000"


def test_the_best_of_several_answers_counts_once_a_problem(made):
    given = made.build({
        "problems": [made.problem(1, split="heldout"), made.problem(2, split="heldout")],
        "verdicts": [made.verdict("p11", "a", 2.0), made.verdict("p11", "b", 3.0)],
        "completions": [
            made.answer(problem, candidate, stage="rl", provider="policy")
            for problem, candidate in (("p11", "a"), ("p11", "b"), ("p12", None))
        ],
    })  # fmt: skip
    row = cells_of(tables.policy_table(given), "rl")
    assert row["Best of k, mean"] == "1.50×"
    assert row["Problems > 1.01×"] == "1 (50 %)"


def test_the_winner_of_the_first_measurement_is_the_one_reported_again(made):
    again = {"problem_id": "p11", "device_kind": "H200", "status": "correct", "speedup": 1.0}
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [made.verdict("p11", "first", 2.0), made.verdict("p11", "second", 1.5)],
        "transferred": [
            {**again, "candidate_id": "first", "certified": 1.2},
            {**again, "candidate_id": "second", "certified": 4.0},
        ],
    })  # fmt: skip
    row = cells_of(tables.device_table(given), "H200")
    assert (row["Winners"], row["First mean"], row["Mean"]) == ("1", "2.00×", "1.20×")


def test_a_winner_that_was_vetoed_since_does_not_count(made):
    again = {"problem_id": "p11", "device_kind": "H200", "status": "hacked", "speedup": None}
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [made.verdict("p11", "first", 2.0, status="hacked") | {"certified": 2.0}],
        "transferred": [{**again, "candidate_id": "first", "certified": None}],
    })  # fmt: skip
    assert tables.device_table(given).rows == ()


def test_each_device_has_a_row(realistic):
    names = [row.cells[0] for row in tables.device_table(realistic).rows]
    assert names == ["NVIDIA H200", "cpu"]


def test_devices_stand_side_by_side():
    table = tables.across_devices({"one": [2.0, None], "two": [1.5, 1.1]}, 7)
    assert table.columns == ("Speedup", "one", "two")
    cells = {row.cells[0]: row.cells[1:] for row in table.rows}
    assert cells["Mean"] == ("1.50×", "1.30×")
    assert cells["Success"] == ("1 (50 %)", "2 (100 %)")
    assert "each of 2 problems, over the 7 candidates" in table.caption


def test_devices_with_nothing_in_common_are_not_compared():
    assert not tables.across_devices({"one": [], "two": []}, 0).rows
