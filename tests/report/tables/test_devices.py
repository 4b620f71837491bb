# ruff: noqa: RUF001 (× is what readers see)
from __future__ import annotations

from cudal1.report.tables import devices
from cudal1.report.tables.cells import AS_ONE, AS_ZERO
from cudal1.report.tables.table import RowKind


def cells_of(table) -> dict[tuple[str, str], tuple[str, ...]]:
    """Return the cells of a table with one column per device, by baseline and statistic."""
    return {tuple(row.cells[0].split(": ")): row.cells[1:] for row in table.rows}


def again(candidate: str, certified: float | None, *, device: str = "H200", problem: str = "p11"):
    return {
        "problem_id": problem,
        "candidate_id": candidate,
        "device_kind": device,
        "status": "correct" if certified else "hacked",
        "speedup": certified,
        "certified": certified,
        "is_null_test": candidate == "null",
    }


def test_the_winner_of_the_first_measurement_is_the_one_reported_again(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "first", 2.0), made.verdict("p11", "second", 1.5)],
            "transferred": [again("first", 1.2), again("second", 4.0)],
        }
    )
    cells = cells_of(devices.device_table(given, AS_ONE))
    assert cells["eager", "Count"] == ("1",)
    assert cells["eager", "Mean when chosen"] == ("2.00×",)
    assert cells["eager", "Mean"] == ("1.20×",)


def test_a_winner_that_was_vetoed_later_does_not_count(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "first", 2.0, status="hacked") | {"certified": 2.0}],
            "transferred": [again("first", None)],
        }
    )
    assert devices.device_table(given, AS_ONE).rows == ()


def test_a_winner_that_fails_elsewhere_counts_by_the_convention(made):
    given = made.build(
        {
            "problems": [made.problem(1), made.problem(2)],
            "verdicts": [made.verdict("p11", "a", 2.0), made.verdict("p12", "b", 2.0)],
            "transferred": [again("a", 3.0), again("b", None, problem="p12")],
        }
    )
    for failed_as, mean, low in ((AS_ONE, "2.00×", "1.50×"), (AS_ZERO, "1.50×", "0.75×")):
        cells = cells_of(devices.device_table(given, failed_as))
        assert (cells["eager", "Mean"], cells["eager", "25 %"]) == ((mean,), (low,))
        assert cells["eager", "Geo. mean"] == ("3.00×",)


def test_the_null_test_of_a_device_is_the_one_judged_beside_its_winners(made):
    given = made.build(
        {
            "problems": [made.problem()],
            "verdicts": [made.verdict("p11", "first", 2.0)],
            "transferred": [again("first", 1.2), again("null", 1.02)],
        }
    )
    table = devices.device_table(given, AS_ONE)
    cells = cells_of(table)
    assert (cells["eager", "Mean"], cells["Null test", "Mean"]) == (("1.20×",), ("1.02×",))
    assert "No null test" not in table.caption


def test_each_device_has_a_column_and_the_null_test_stands_where_it_was_run(realistic):
    table = devices.device_table(realistic, AS_ONE)
    assert table.columns == ("Speedup over", "NVIDIA H200", "cpu")
    assert cells_of(table)["Null test", "> 1.01×"] == ("–", "0 (0 %)")
    assert "No null test was run on NVIDIA H200" in table.caption


def on(made, device: str, certified: float, *, compiled: float | None = None, **rows):
    """Return two problems on a device, one of them without success."""
    return made.build(
        {
            "problems": [made.problem(1), made.problem(2)],
            "verdicts": [
                made.verdict(
                    "p11",
                    "c",
                    certified,
                    device_kind=device,
                    over_baselines=compiled
                    and [{"baseline": "compile", "certified_over": certified / compiled}],
                )
            ],
            "baselines": []
            if compiled is None
            else [
                {
                    "problem_id": "p11",
                    "baseline": "compile",
                    "status": "correct",
                    "speedup": compiled,
                    "at_most": compiled,
                }
            ],
            **rows,
        },
        device_kind=device,
    )


def test_devices_are_compared_over_each_baseline_that_was_judged_on_them(made):
    null = [{"problem_id": "p11", "status": "correct", "speedup": 1.0, "certified": 1.0}]
    judged = [on(made, "one", 2.0, compiled=1.6), on(made, "two", 3.0, null_test=null)]
    table = devices.across_devices(judged, 7, AS_ONE)
    assert table.columns == ("Speedup over", "one", "two")
    cells = cells_of(table)
    assert cells["eager", "Mean"] == ("1.50×", "2.00×")
    assert cells["eager", "Success"] == ("1 (50 %)", "1 (50 %)")
    assert cells["eager", "fast_1.5"] == ("50 %", "50 %")
    assert (cells["compile", "Count"], cells["compile", "Mean"]) == (("1", "–"), ("1.25×", "–"))
    assert (cells["Null test", "Count"], cells["Null test", "Mean"]) == (("–", "1"), ("–", "1.00×"))
    assert "each of 2 problems, over the 7 candidates" in table.caption
    assert "No null test was run on one," in table.caption
    kinds = {row.cells[0]: row.kind for row in table.rows}
    assert kinds["Null test: Max"] is RowKind.NULL_TEST


def test_a_column_has_the_cells_of_the_table_of_speedups(made):
    from cudal1.report.tables.speedups import speedup_table

    given = on(made, "one", 2.0)
    (row, *_) = speedup_table(given, AS_ZERO).rows
    column = [row.cells[1] for row in devices.across_devices([given], 1, AS_ZERO).rows]
    assert tuple(column) == row.cells[1:]


def test_devices_with_nothing_in_common_are_not_compared(made):
    assert not devices.across_devices([made.build({}), made.build({})], 0, AS_ONE).rows
