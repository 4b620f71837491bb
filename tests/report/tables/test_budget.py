# ruff: noqa: RUF001 (× and – are what readers see)
"""Best so far at equal budget, beside the control that repeats the first round's best."""

from __future__ import annotations

from cudal1.report.tables import budget

ONE = {"search.answers_per_round": "2"}


def given_of(made, answers, searched=(), **params):
    """Return the input for one problem; answers are (stage, number, speedup, shown, copies)."""
    return made.build(
        {
            "problems": [made.problem(1, split="heldout")],
            "verdicts": [
                made.verdict("p11", f"{stage}-{number}", speedup)
                for stage, number, speedup, *_ in answers
                if speedup is not None
            ],
            "completions": [
                made.answer(
                    "p11",
                    None if speedup is None else f"{stage}-{number}",
                    stage=stage,
                    provider=stage,
                    number=number,
                    best_shown=shown,
                    is_copy=None if shown is None else copies,
                )
                for stage, number, speedup, shown, copies in answers
            ],
            "searched": [
                row
                for stage, sampling in (("search@v", "none"), ("search@e", "bucket"))
                for row in made.searched(stage, "p11", sampling=sampling)
            ]
            + list(searched),
        },
        params=params,
    )


PLAIN = [("search@v", number, 1.0 + number / 10, None, False) for number in range(4)]
EVOLVED = [
    ("search@e", 0, None, None, False),
    ("search@e", 1, 2.0, None, False),
    ("search@e", 2, 2.0, 2.0, True),
    ("search@e", 3, 3.0, 2.0, False),
]


def rows_of(table) -> dict[str, dict[str, str]]:
    return {row.cells[0]: dict(zip(table.columns, row.cells, strict=True)) for row in table.rows}


def test_every_method_is_shown_by_its_best_after_equally_many_verdicts(made):
    found = rows_of(budget.budget_table(given_of(made, [*PLAIN, *EVOLVED], **ONE)))
    assert found["v"]["Best of 1"] == "1.00× ± 0.00"
    assert found["v"]["Best of 4"] == "1.30× ± 0.00"
    assert found["e"]["Best of 1"] == "0.00× ± 0.00"
    assert found["e"]["Area"] == "1.75× ± 0.00"  # 0, 2, 2, 3
    assert found["e"]["Best of 4 over the first row"].startswith("2.31×")


def test_a_method_with_exemplars_has_its_echo_beside_it(made):
    found = rows_of(budget.budget_table(given_of(made, [*PLAIN, *EVOLVED], **ONE)))
    assert list(found) == ["v", "e", "– its echo"]
    assert found["– its echo"]["Best of 4"] == "2.00× ± 0.00"
    assert found["e"]["Later answers over echo"].startswith("1.25×")
    assert found["v"]["Later answers over echo"] == "–"


def test_copies_are_no_progress(made):
    found = rows_of(budget.budget_table(given_of(made, [*PLAIN, *EVOLVED], **ONE)))
    assert (found["e"]["Copies"], found["e"]["Progress ≥ 1.05×"]) == ("50 %", "50 %")


def test_without_the_size_of_a_round_there_is_no_echo(made):
    assert list(rows_of(budget.budget_table(given_of(made, [*PLAIN, *EVOLVED])))) == ["v", "e"]


def test_a_run_without_methods_has_no_rows(made):
    assert budget.budget_table(made.build({})).rows == ()


def test_refine_stands_behind_vanilla_and_evolve_with_its_echo(made):
    refined = [(stage.replace("@e", "@a"), *rest) for stage, *rest in EVOLVED]
    given = given_of(
        made,
        [*PLAIN, *EVOLVED, *refined],
        searched=made.searched("search@a", "p11", method="refine"),
        **ONE,
    )
    names = list(rows_of(budget.budget_table(given)))
    assert names == ["v", "e", "– its echo", "a"], "equal names of echoes are one key"
    assert [row.cells[0] for row in budget.budget_table(given).rows].count("– its echo") == 2
