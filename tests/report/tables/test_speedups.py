# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from cudal1.protocol import Rule
from cudal1.report.tables import speedups
from cudal1.report.tables.cells import AS_ONE, AS_ZERO
from cudal1.report.tables.table import RowKind


def cells_of(table, first: str) -> dict[str, str]:
    row = next(row for row in table.rows if row.cells[0] == first)
    return dict(zip(table.columns, row.cells, strict=True))


def test_a_failed_problem_counts_by_the_convention_of_its_column(made):
    given = made.build(
        {
            "problems": [made.problem(1), made.problem(2)],
            "verdicts": [made.verdict("p11", "c", 3.0)],
        }
    )
    as_one, as_zero = (
        cells_of(speedups.speedup_table(given, failed_as), "All") for failed_as in (AS_ONE, AS_ZERO)
    )
    assert [as_one[name] for name in ("Mean", "Max", "75 %", "Median", "25 %")] == [
        "2.00×",
        "3.00×",
        "2.50×",
        "2.00×",
        "1.50×",
    ]
    assert [as_zero[name] for name in ("Mean", "Max", "75 %", "Median", "25 %")] == [
        "1.50×",
        "3.00×",
        "2.25×",
        "1.50×",
        "0.75×",
    ]
    for row in (as_one, as_zero):
        assert (row["Geo. mean"], row["fast_1"], row["Success"]) == ("3.00×", "50 %", "1 (50 %)")


def test_the_caption_and_the_title_name_the_table_s_convention(realistic):
    for failed_as, said in ((AS_ONE, "1×"), (AS_ZERO, "0×")):
        table = speedups.speedup_table(realistic, failed_as)
        assert f"counts as {said} in mean, maximum and percentiles" in table.caption
        assert table.title.endswith(f"a failure as {said}")


def test_the_paper_s_numbers_stand_beside_the_convention_that_they_use(realistic):
    kinds = [row.kind for row in speedups.speedup_table(realistic, AS_ZERO).rows]
    assert RowKind.PAPER not in kinds
    assert kinds[-1] is RowKind.NULL_TEST


def test_a_missing_null_test_is_mentioned_in_the_caption(made):
    given = made.build({"problems": [made.problem()]})
    assert "No null test was run on cpu" in speedups.speedup_table(given, AS_ONE).caption


def test_a_certificate_of_exactly_the_threshold_is_not_above_it(made):
    given = made.build({"problems": [made.problem()], "verdicts": [made.verdict("p11", "c", 1.01)]})
    assert cells_of(speedups.speedup_table(given, AS_ONE), "All")["> 1.01×"] == "0 (0 %)"


def test_every_split_and_level_has_a_row(realistic):
    names = [row.cells[0] for row in speedups.speedup_table(realistic, AS_ONE).rows]
    assert names[:6] == ["All", "train", "held out", "level 1", "level 2", "level 3"]
    assert "held out, level 3" in names


def test_a_single_split_has_no_row_of_its_own(made):
    given = made.build({"problems": [made.problem(1), made.problem(2)]})
    assert [row.cells[0] for row in speedups.speedup_table(given, AS_ONE).rows] == ["All", "Paper"]


def test_the_null_test_stands_beside_the_result(realistic):
    kinds = [row.kind for row in speedups.speedup_table(realistic, AS_ONE).rows]
    assert kinds[-2:] == [RowKind.NULL_TEST, RowKind.PAPER]


def test_the_largest_five_are_shown_separately(made):
    values = [11.0, 2.0, 2.0, 2.0, 2.0, 2.0, None]
    given = made.build(
        {
            "problems": [made.problem(number) for number in range(len(values))],
            "verdicts": [
                made.verdict(f"p1{number}", f"c{number}", value)
                for number, value in enumerate(values)
                if value is not None
            ],
        }
    )
    assert cells_of(speedups.speedup_table(given, AS_ONE), "All")["Top 5"] == "93 %"


def test_the_share_of_the_largest_five_is_omitted_where_no_more_than_five_gain(made):
    given = made.build({"problems": [made.problem()], "verdicts": [made.verdict("p11", "c", 2.0)]})
    assert cells_of(speedups.speedup_table(given, AS_ONE), "All")["Top 5"] == "–"


def test_the_estimate_of_the_paper_s_rule_is_not_called_a_bound(made):
    protocol = made.build({}).provenance.protocol.model_copy(
        update={"rule": Rule.PAPER, "window_s": 1200.0}
    )
    caption = speedups.speedup_table(made.build({}, protocol=protocol), AS_ONE).caption
    assert "certifies nothing" in caption
    assert "lower confidence bound" not in caption
