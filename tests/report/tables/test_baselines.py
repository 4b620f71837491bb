# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.report.tables import baselines
from cudal1.report.tables.cells import AS_ONE, AS_ZERO
from cudal1.report.tables.table import RowKind


def cells_of(table, first: str) -> dict[str, str]:
    row = next(row for row in table.rows if row.cells[0] == first)
    return dict(zip(table.columns, row.cells, strict=True))


def judged(number: int, baseline: Baseline, at_most: float | None, **changes: Any):
    """Return a row on the reference of problem `number`."""
    return {
        "problem_id": f"p1{number}",
        "baseline": baseline.value,
        "status": "crashed" if at_most is None else "correct",
        "reason": None,
        "speedup": None if at_most is None else at_most - 0.5,
        "at_most": at_most,
        **changes,
    }


def over(baseline: Baseline, certified: float):
    return [{"baseline": baseline.value, "certified_over": certified}]


@pytest.fixture
def compared(made):
    """Return two problems; `compile` makes the first twice as fast and fails on the second."""
    return made.build(
        {
            "problems": [made.problem(1), made.problem(2)],
            "verdicts": [
                made.verdict("p11", "a", 3.0, over_baselines=over(Baseline.COMPILE, 1.5)),
                made.verdict("p12", "b", 5.0),
            ],
            "baselines": [judged(1, Baseline.COMPILE, 2.0), judged(2, Baseline.COMPILE, None)],
            "null_test": [
                {"problem_id": "p11", "status": "correct", "speedup": 0.98, "certified": 1.0}
            ],
        }
    )


def test_a_speedup_over_a_baseline_comes_from_the_verdict(compared):
    assert cells_of(baselines.over_baselines(compared, AS_ONE), "compile")["Mean"] == "1.50×"


def test_a_failed_baseline_is_compared_with_no_candidate(compared):
    table = baselines.over_baselines(compared, AS_ONE)
    assert cells_of(table, "compile")["Count"] == "1"
    assert "Left out: compile (crashed: 1)." in table.caption


def test_a_baseline_that_runs_nowhere_has_an_empty_denominator(made):
    given = made.build(
        {"problems": [made.problem()], "baselines": [judged(1, Baseline.CUDA_GRAPH, None)]}
    )
    row = cells_of(baselines.over_baselines(given, AS_ONE), "cuda_graph")
    assert (row["Count"], row["Mean"]) == ("0", "–")


def test_a_problem_without_success_counts_over_a_baseline_by_either_convention(made):
    given = made.build(
        {"problems": [made.problem()], "baselines": [judged(1, Baseline.CUDA_GRAPH, 2.0)]}
    )
    for failed_as, mean in ((AS_ONE, "1.00×"), (AS_ZERO, "0.00×")):
        row = cells_of(baselines.over_baselines(given, failed_as), "cuda_graph")
        assert (row["Mean"], row["Median"], row["Success"]) == (mean, mean, "0 (0 %)")


def test_only_judged_baselines_have_rows(compared, made):
    for table in (baselines.over_baselines(compared, AS_ONE), baselines.baseline_table(compared)):
        assert [row.cells[0] for row in table.rows] == ["compile", "Null test"]
    assert not baselines.over_baselines(made.build({}), AS_ONE).rows
    assert not baselines.baseline_table(made.build({})).rows


def test_the_baselines_own_speedups_come_with_their_denominator(compared):
    table = baselines.baseline_table(compared)
    row = cells_of(table, "compile")
    assert (row["Problems"], row["Denominator"]) == ("2", "1 (50 %)")
    assert (row["Left out, and why"], row["Mean"]) == ("crashed: 1", "1.50×")
    assert table.rows[-1].kind is RowKind.NULL_TEST
    assert cells_of(table, "Null test")["Mean"] == "0.98×"


@pytest.mark.parametrize(
    ("baseline", "status", "reason", "said"),
    [
        (
            "cuda_graph",
            "crashed",
            "AcceleratorError: CUDA error: operation failed due to a previous error during capture",
            "cannot be captured",
        ),
        (
            "cuda_graph",
            "crashed",
            "RuntimeError: CUDA error: operation not permitted when stream is capturing",
            "cannot be captured",
        ),
        ("cuda_graph", "crashed", "OutOfMemoryError: CUDA out of memory", "crashed"),
        ("cudnn_tf32", "crashed", "ValueError: what was captured", "crashed"),
        (
            "compile",
            "crashed",
            "InductorError: CppCompileError: C++ compile error",
            "cannot be compiled",
        ),
        ("compile", "timed_out", "a call did not return in time", "timed out"),
        (
            "cudnn_tf32",
            "incorrect",
            "correct only in the looser precision class tf32, not strict",
            "only as exact as tf32",
        ),
        ("cuda_graph", "incorrect", None, "incorrect"),
    ],
)
def test_reasons_why_a_baseline_cannot_run_are_grouped_by_kind(
    made, baseline, status, reason, said
):
    rows = [
        judged(number, Baseline(baseline), None, status=status, reason=reason) for number in (1, 2)
    ]
    given = made.build({"problems": [made.problem(1), made.problem(2)], "baselines": rows})
    row = cells_of(baselines.baseline_table(given), baseline)
    assert (row["Left out, and why"], row["Denominator"]) == (f"{said}: 2", "0 (0 %)")


def test_an_untimed_baseline_is_in_no_denominator(made):
    only_checked = judged(1, Baseline.COMPILE, None, status="correct")
    given = made.build({"problems": [made.problem()], "baselines": [only_checked]})
    assert cells_of(baselines.baseline_table(given), "compile")["Left out, and why"] == (
        "not timed: 1"
    )
    assert cells_of(baselines.over_baselines(given, AS_ONE), "compile")["Count"] == "0"
