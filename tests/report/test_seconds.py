"""The table that says where a step's time goes."""

# ruff: noqa: RUF001 (– is what readers see)

from __future__ import annotations

from cudal1.report.seconds import seconds_table


def steps(stage: str, **series: list[float]) -> list[dict[str, object]]:
    return [
        {"stage": stage, "step": step, "name": name, "value": value}
        for name, values in series.items()
        for step, value in enumerate(values, start=1)
    ]


def test_a_row_holds_means_over_the_steps_that_were_timed(made):
    rows = steps("rl", generate_s=[1.0, 3.0], judge_s=[4.0, 8.0], idle=[0.1, 0.3])
    given = made.build({"steps": rows})
    (row,) = seconds_table(given).rows
    assert row.cells == ("rl", "2", "2.00", "–", "6.00", "–", "–", "–", "20 %")


def test_a_stage_that_times_nothing_has_no_row(made):
    given = made.build({"steps": steps("sft", loss=[2.0, 1.0])})
    assert seconds_table(given).rows == ()
