# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from cudal1.report.tables import tables


def cells_of(table, first: str) -> dict[str, str]:
    row = next(row for row in table.rows if row.cells[0] == first)
    return dict(zip(table.columns, row.cells, strict=True))


def test_a_null_test_that_fails_is_shown(made):
    given = made.build(
        {
            "null_test": [
                {"problem_id": "a", "status": "correct", "speedup": 1.1, "certified": 1.05}
                | {"is_stable": False},
                {"problem_id": "b", "status": "incorrect", "speedup": None, "certified": None},
            ]
        }
    )
    row = cells_of(tables.null_table(given), "reference as candidate")
    assert row["Correct"] == "1 (50 %)"
    assert row["Max certified"] == "1.05×"
    assert row["> 1.01×"] == "1"
    assert row["Unstable"] == "1 (100 %)"


def test_a_policy_is_examined_on_held_out_problems_only(made):
    given = made.build(
        {
            "problems": [made.problem(1), made.problem(2, split="heldout")],
            "verdicts": [
                made.verdict("p11", "good", 2.0),
                made.verdict("p12", "bad", status="crashed"),
            ],
            "completions": [
                made.answer("p11", "good", stage="sft", provider="policy"),
                made.answer("p12", "bad", stage="sft", provider="policy"),
            ],
        }
    )
    row = cells_of(tables.policy_table(given), "sft")
    assert row["Held-out success"].startswith("0 %")
    assert row["Held-out reward"] == "0.000"
    assert row["Training success"] == "100 %"
    assert row["Training reward"] == "2.000"


def test_the_best_of_several_answers_counts_once_per_problem(made):
    given = made.build(
        {
            "problems": [made.problem(1, split="heldout"), made.problem(2, split="heldout")],
            "verdicts": [made.verdict("p11", "a", 2.0), made.verdict("p11", "b", 3.0)],
            "completions": [
                made.answer(problem, candidate, stage="rl", provider="policy")
                for problem, candidate in (("p11", "a"), ("p11", "b"), ("p12", None))
            ],
        }
    )
    row = cells_of(tables.policy_table(given), "rl")
    assert (row["Best of k, mean, 0×"], row["Best of k, mean, 1×"]) == ("1.50×", "2.00×")
    assert row["Problems > 1.01×"] == "1 (50 %)"


def test_the_null_test_stands_beside_the_policies(made):
    given = made.build(
        {
            "problems": [made.problem(1), made.problem(2, split="heldout")],
            "completions": [made.answer("p12", None, stage="sft", provider="policy")],
            "null_test": [
                {"problem_id": "p11", "status": "crashed", "speedup": None, "certified": None},
                {"problem_id": "p12", "status": "correct", "speedup": 1.1, "certified": 1.05},
            ],
        }
    )
    row = cells_of(tables.policy_table(given), "Null test")
    assert (row["Held-out answers"], row["Held-out reward"]) == ("1", "1.050")
    assert (row["Best of k, mean, 0×"], row["Problems > 1.01×"]) == ("1.05×", "1 (100 %)")
    assert (row["Training success"], row["Training reward"]) == ("0 %", "0.000")
