# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

import polars as pl

from cudal1.report.tables import methods

TWO = ("p11", "p12")


def cells_of(table, first: str) -> dict[str, str]:
    row = next(row for row in table.rows if row.cells[0] == first)
    return dict(zip(table.columns, row.cells, strict=True))


def ours(table) -> list[str]:
    return [row.cells[0] for row in table.rows if row.kind.value == "plain"]


def given_of(made, answers, searched, *, split: str = "heldout"):
    """Return the input for two problems; answers are (stage, problem, number, speedup or None)."""
    sources = {(problem, speedup): f"{problem}-{speedup}" for _, problem, _, speedup in answers}
    return made.build(
        {
            "problems": [made.problem(1, split=split), made.problem(2, split=split)],
            "verdicts": [
                made.verdict(problem, candidate, speedup)
                for (problem, speedup), candidate in sources.items()
                if speedup is not None
            ],
            "completions": [
                made.answer(
                    problem,
                    None if speedup is None else sources[problem, speedup],
                    stage=stage,
                    provider=stage if stage.startswith("search@") else "policy",
                    number=number,
                )
                for stage, problem, number, speedup in answers
            ],
            "searched": searched,
        }
    )


def test_a_problem_without_success_counts_as_0_and_as_1(made):
    given = given_of(
        made,
        [("search@v", "p11", 0, 2.0), ("search@v", "p12", 0, None)],
        made.searched("search@v", *TWO),
    )
    row = cells_of(methods.method_table(given), "v")
    assert (row["Mean, 0×"], row["Mean, 1×"]) == ("1.00× ± 1.96", "1.50×")
    assert (row["Median, 0×"], row["Median, 1×"]) == ("1.00×", "1.50×")
    assert (row["25 %, 0×"], row["25 %, 1×"]) == ("0.50×", "1.25×")
    assert (row["Geo. mean, 1×"], row["Geo. mean of successes"]) == ("1.41×", "2.00×")
    assert (row["Success"], row["> 1.01×"], row["Max"]) == ("1 (50 %)", "1 (50 %)", "2.00×")


def test_the_best_of_the_answers_counts(made):
    given = given_of(
        made,
        [("search@v", "p11", number, speedup) for number, speedup in enumerate([1.2, 3.0, None])],
        made.searched("search@v", "p11"),
    )
    assert cells_of(methods.method_table(given), "v")["Max"] == "3.00×"


def test_methods_are_compared_on_the_problems_that_all_were_given(made):
    given = given_of(
        made,
        [("search@a", "p11", 0, 2.0), ("search@a", "p12", 0, 9.0), ("search@b", "p11", 0, 3.0)],
        [*made.searched("search@a", *TWO), *made.searched("search@b", "p11")],
    )
    table = methods.method_table(given)
    assert cells_of(table, "a")["Problems"] == "1"
    assert cells_of(table, "a")["Max"] == "2.00×"


def test_rows_are_compared_by_the_smallest_number_of_answers_of_any_row(made):
    given = given_of(
        made,
        [("search@a", "p11", 0, 1.1), ("search@a", "p11", 1, 5.0), ("sft", "p11", 0, 2.0)],
        made.searched("search@a", "p11", num_asked=2),
    )
    row = cells_of(methods.method_table(given), "a")
    assert (row["Answers"], row["Max"]) == ("1", "1.10×")


def test_a_method_with_a_stopped_provider_is_left_out_and_named(made):
    given = given_of(
        made,
        [("search@a", "p11", 0, 1.1), ("search@a", "p11", 1, 5.0), ("search@b", "p11", 0, 2.0)],
        [
            *made.searched("search@a", "p11", num_asked=2),
            *made.searched("search@b", "p11", num_asked=1),
        ],
    )
    table = methods.method_table(given)
    assert ours(table) == ["a"]
    assert "the provider stopped: b." in table.caption


def test_methods_that_all_stopped_at_once_have_no_row(made):
    given = given_of(made, [], made.searched("search@a", "p11", num_asked=0))
    assert not methods.method_table(given).rows


def test_missing_answers_of_an_exhausted_provider_count_as_failures(made):
    given = given_of(
        made,
        [("search@a", "p11", 0, 2.0), ("search@a", "p11", 1, 3.0), ("search@b", "p12", 0, 2.0)],
        [
            *made.searched("search@a", *TWO, num_asked=2),
            *made.searched("search@b", *TWO, num_asked=2),
        ],
    )
    table = methods.method_table(given)
    assert cells_of(table, "b")["Success"] == "1 (50 %)"
    assert cells_of(table, "a")["Max"] == "3.00×"


def test_policies_of_the_stages_stand_beside_methods(made):
    given = given_of(
        made,
        [("search@v", "p11", 0, 2.0), ("sft", "p11", 0, 1.5), ("rl", "p11", 0, 2.5)],
        made.searched("search@v", "p11", num_asked=1),
    )
    table = methods.method_table(given)
    assert ours(table) == ["v", "sft (stage 1)", "rl (3 stages)"]
    assert cells_of(table, "rl (3 stages)")["Max"] == "2.50×"


def test_policies_examined_on_other_problems_are_left_out_and_named(made):
    given = given_of(
        made,
        [("search@v", "p11", 0, 2.0), ("sft", "p12", 0, 1.5)],
        made.searched("search@v", "p11"),
    )
    table = methods.method_table(given)
    assert ours(table) == ["v"]
    assert "Policies are left out" in table.caption


def test_answers_that_a_policy_learned_from_are_not_an_examination(made):
    given = given_of(
        made,
        [("search@v", "p11", 0, 2.0), ("rl", "p11", 0, 9.0)],
        made.searched("search@v", "p11"),
        split="train",
    )
    assert ours(methods.method_table(given)) == ["v"]


def test_methods_stand_in_the_paper_s_order(made):
    kinds = {"a": "bucket", "b": "island", "c": "random", "d": "none"}
    given = given_of(
        made,
        [(f"search@{name}", "p11", 0, 2.0) for name in kinds],
        [
            row
            for name, kind in kinds.items()
            for row in made.searched(f"search@{name}", "p11", sampling=kind)
        ],
    )
    assert ours(methods.method_table(given)) == ["d", "c", "b", "a"]


def test_a_shared_answer_counts_for_every_method_that_used_it(made):
    given = given_of(
        made,
        [("search@v", "p11", 0, 2.0), ("search@e", "p11", 0, 2.0)],
        [*made.searched("search@v", "p11"), *made.searched("search@e", "p11", sampling="bucket")],
    )
    table = methods.method_table(given)
    assert cells_of(table, "v")["Max"] == cells_of(table, "e")["Max"] == "2.00×"


def test_the_null_test_of_the_compared_problems_stands_beside_the_methods(made):
    given = given_of(made, [("search@v", "p11", 0, 2.0)], made.searched("search@v", "p11"))
    assert "No null test was run on cpu" in methods.method_table(given).caption
    null = [
        {"problem_id": problem, "status": "correct", "speedup": 1.0, "certified": certified}
        for problem, certified in (("p11", 1.0), ("p12", 9.0))
    ]
    frame = pl.DataFrame(null, schema=made.schemas["null_test"])
    table = methods.method_table(given.model_copy(update={"null_test": frame}))
    row = cells_of(table, "Null test")
    assert (row["Problems"], row["Answers"], row["Max"]) == ("1", "1", "1.00×")
    assert "No null test" not in table.caption


def test_methods_without_a_problem_in_common_are_not_compared(made):
    given = given_of(
        made, [], [*made.searched("search@a", "p11"), *made.searched("search@b", "p12")]
    )
    assert not methods.method_table(given).rows


def test_without_methods_there_is_no_table(made):
    given = given_of(made, [("sft", "p11", 0, 1.5)], [])
    assert not methods.method_table(given).rows


def test_a_method_without_success_has_a_row(made):
    given = given_of(made, [("search@v", "p11", 0, None)], made.searched("search@v", *TWO))
    row = cells_of(methods.method_table(given), "v")
    assert (row["Mean, 0×"], row["Mean, 1×"], row["Max"]) == ("0.00× ± 0.00", "1.00×", "–")


def test_the_paper_s_rows_are_set_apart(realistic):
    table = methods.method_table(realistic)
    paper = [row for row in table.rows if row.kind.value == "paper"]
    assert [row.cells[0] for row in paper][:2] == ["Paper: R1, vanilla", "Paper: R1, evolve"]
    assert ours(table)[:2] == ["vanilla", "evolve"]
