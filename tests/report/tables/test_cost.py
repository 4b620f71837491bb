"""Tests of the bill as readers see it."""

from __future__ import annotations

from typing import Any

from cudal1.report.tables.cost import cost_table


def rows_of(given: Any) -> list[dict[str, str]]:
    table = cost_table(given)
    return [dict(zip(table.columns, row.cells, strict=True)) for row in table.rows]


def bill(provider: str, **changes: Any) -> dict[str, Any]:
    return {
        "provider": provider,
        "num_answers": 4,
        "num_tries": 5,
        "cost_usd": 1.5,
        "num_in_doubt": 1,
        "in_doubt_usd": 0.25,
        **changes,
    }


def test_tokens_and_judging_time_are_added_up(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a", judge_s=1800.0)],
            "completions": [made.answer("p11", "a", number=i) for i in range(3)],
        }
    )
    author, harness = rows_of(given)
    assert (author["Answers"], author["Prompt tokens"]) == ("3", "1,200")
    assert harness["Judging, h"] == "0.50"


def test_seconds_of_waiting_for_compilers_are_shown_where_they_are_known(made):
    verdicts = [
        made.verdict("p11", "a", judge_s=1800.0, compiling_s=720.0),
        made.verdict("p11", "b", judge_s=1800.0, compiling_s=None),
    ]
    given = made.build({"problems": [made.problem()], "verdicts": verdicts})
    assert [row["Judging, h"] for row in rows_of(given)] == ["1.00", "0.20"]
    given = made.build({"problems": [made.problem()], "verdicts": verdicts[1:]})
    assert [row["Judging, h"] for row in rows_of(given)] == ["0.50"]


def test_dollars_are_the_bill_s_with_the_amount_in_doubt(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "a"), made.verdict("p11", "b", status="crashed")],
            "completions": [made.answer("p11", "a", number=0), made.answer("p11", "b", number=1)],
            "bills": [bill("fuser")],
        }
    )
    author = rows_of(given)[0]
    assert (author["Requests"], author["USD"], author["In doubt, USD"]) == ("5", "1.50", "0.25")
    assert author["USD a success"] == "1.500"


def test_a_free_provider_has_no_bill(made):
    given = made.build({"problems": [made.problem()], "completions": [made.answer("p11", None)]})
    assert rows_of(given)[0]["USD"] == "–"  # noqa: RUF001 (a dash is what readers see)


def test_a_bill_without_answers_is_shown(made):
    given = made.build({"problems": [made.problem()], "bills": [bill("reviewer")]})
    assert [(row["Author"], row["Answers"]) for row in rows_of(given)] == [("reviewer", "4")]


def test_an_answer_used_by_two_methods_counts_once(made):
    shared = made.answer("p11", "a", stage="search@vanilla", provider="vanilla")
    given = made.build(
        {
            "problems": [made.problem()],
            "completions": [shared, {**shared, "stage": "search@evolve"}],
        }
    )
    assert sum(int(row["Answers"]) for row in rows_of(given)) == 1
