# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from typing import Any

import pytest

from cudal1.baseline import Baseline
from cudal1.protocol import Rule
from cudal1.report import speedups
from cudal1.report.table import RowKind


def cells_of(table, first: str) -> dict[str, str]:
    row = next(row for row in table.rows if row.cells[0] == first)
    return dict(zip(table.columns, row.cells, strict=True))


def test_a_failed_problem_counts_by_the_convention_of_its_column(made):
    given = made.build({
        "problems": [made.problem(1), made.problem(2)], "verdicts": [made.verdict("p11", "c", 3.0)],
    })  # fmt: skip
    row = cells_of(speedups.speedup_table(given), "All")
    assert row["Mean"] == "2.00×"
    assert row["Mean, 0×"] == "1.50×"
    assert row["Geo. mean"] == "3.00×"
    assert row["fast_1"] == "50 %"
    assert row["Success"] == "1 (50 %)"


def test_the_caption_names_both_conventions(realistic):
    caption = speedups.speedup_table(realistic).caption
    assert "counts as 1×" in caption
    assert "as 0×" in caption


def test_a_certificate_of_exactly_the_threshold_is_not_above_it(made):
    given = made.build({
        "problems": [made.problem()], "verdicts": [made.verdict("p11", "c", 1.01)],
    })  # fmt: skip
    assert cells_of(speedups.speedup_table(given), "All")["> 1.01×"] == "0 (0 %)"


def test_every_split_and_level_has_a_row(realistic):
    names = [row.cells[0] for row in speedups.speedup_table(realistic).rows]
    assert names[:6] == ["All", "train", "held out", "level 1", "level 2", "level 3"]
    assert "held out, level 3" in names


def test_a_single_split_has_no_row_of_its_own(made):
    given = made.build({"problems": [made.problem(1), made.problem(2)]})
    assert [row.cells[0] for row in speedups.speedup_table(given).rows] == ["All", "Paper"]


def test_the_null_test_stands_beside_the_result(realistic):
    kinds = [row.kind for row in speedups.speedup_table(realistic).rows]
    assert kinds[-2:] == [RowKind.NULL_TEST, RowKind.PAPER]


def test_the_largest_five_are_told_apart(made):
    values = [11.0, 2.0, 2.0, 2.0, 2.0, 2.0, None]
    given = made.build({
        "problems": [made.problem(number) for number in range(len(values))],
        "verdicts": [
            made.verdict(f"p1{number}", f"c{number}", value)
            for number, value in enumerate(values) if value is not None
        ],
    })  # fmt: skip
    assert cells_of(speedups.speedup_table(given), "All")["Top 5"] == "93 %"


def test_where_no_more_than_five_gain_their_share_tells_nothing(made):
    given = made.build({
        "problems": [made.problem()], "verdicts": [made.verdict("p11", "c", 2.0)],
    })  # fmt: skip
    assert cells_of(speedups.speedup_table(given), "All")["Top 5"] == "–"


def test_what_the_paper_s_rule_reads_is_not_called_a_bound(made):
    protocol = made.build({}).provenance.protocol.model_copy(
        update={"rule": Rule.PAPER, "window_s": 1200.0}
    )
    caption = speedups.speedup_table(made.build({}, protocol=protocol)).caption
    assert "certifies nothing" in caption
    assert "lower confidence bound" not in caption


def judged(number: int, baseline: Baseline, at_most: float | None, **changes: Any):
    """A row on the reference of problem `number`."""
    return {
        "problem_id": f"p1{number}", "baseline": baseline.value,
        "status": "crashed" if at_most is None else "correct", "reason": None,
        "speedup": None if at_most is None else at_most - 0.5, "at_most": at_most, **changes,
    }  # fmt: skip


@pytest.fixture
def compared(made):
    """Two problems; compiled, the first runs twice as fast, and the second not at all."""
    return made.build({
        "problems": [made.problem(1), made.problem(2)],
        "verdicts": [made.verdict("p11", "a", 3.0), made.verdict("p12", "b", 5.0)],
        "baselines": [judged(1, Baseline.COMPILE, 2.0), judged(2, Baseline.COMPILE, None)],
        "null_test": [
            {"problem_id": "p11", "status": "correct", "speedup": 1.0, "certified": 1.0}
        ],
    })  # fmt: skip


def test_a_speedup_over_a_baseline_is_over_what_the_baseline_has_at_most(compared):
    assert cells_of(speedups.over_baselines(compared), "compile")["Mean"] == "1.50×"


def test_where_a_baseline_does_not_run_nothing_is_compared_with_it(compared):
    assert cells_of(speedups.over_baselines(compared), "compile")["Count"] == "1"


def test_a_problem_without_success_counts_over_a_baseline_too(made):
    given = made.build({
        "problems": [made.problem()], "baselines": [judged(1, Baseline.CUDA_GRAPH, 2.0)],
    })  # fmt: skip
    row = cells_of(speedups.over_baselines(given), "cuda_graph")
    assert (row["Mean"], row["Mean, 0×"], row["Success"]) == ("1.00×", "0.00×", "0 (0 %)")


def test_only_baselines_that_were_judged_have_rows(compared, made):
    names = [row.cells[0] for row in speedups.over_baselines(compared).rows]
    assert names == ["compile", "Null test"]
    assert not speedups.over_baselines(made.build({})).rows
    assert not speedups.baseline_table(made.build({})).rows


def test_the_baselines_themselves_are_told_with_their_failures(compared):
    row = cells_of(speedups.baseline_table(compared), "compile")
    assert (row["Problems"], row["Correct"], row["Failed"]) == ("2", "1 (50 %)", "1 crashed")
    assert row["Mean"] == "1.50×"
