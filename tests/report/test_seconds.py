"""Tests of the table and the picture of a step's seconds."""

# ruff: noqa: RUF001 (– is what readers see)

from __future__ import annotations

from cudal1.report.seconds import PARTS, seconds_figures, seconds_table


def steps(stage: str, **series: list[float]) -> list[dict[str, object]]:
    return [
        {"stage": stage, "step": step, "name": name, "value": value}
        for name, values in series.items()
        for step, value in enumerate(values, start=1)
    ]


def test_a_row_holds_means_over_the_timed_steps(made):
    rows = steps("rl", generate_s=[1.0, 3.0], judge_s=[4.0, 8.0], idle=[0.1, 0.3])
    given = made.build({"steps": rows})
    (row,) = seconds_table(given).rows
    assert row.cells == ("rl", "2", "2.00", "–", "6.00", "–", "–", "–", "20 %")


def test_every_part_of_a_step_is_drawn_with_its_name(made):
    given = made.build({"steps": steps("rl", **{name: [1.0, 2.0] for name in PARTS})})
    (figure,) = seconds_figures(given)
    for part in ("generate", "build", "judge", "train", "rest"):
        assert f">{part}</text>" in figure.svg


def test_a_part_is_drawn_at_its_place(made):
    def drawn(rest_s: float) -> str:
        rows = steps("rl", train_s=[1.0, 2.0, 9.0], rest_s=[0.5, rest_s, 1.0])
        return seconds_figures(made.build({"steps": rows}))[0].svg

    assert drawn(3.0) != drawn(7.0)


def test_a_stage_without_times_has_no_row(made):
    given = made.build({"steps": steps("sft", loss=[2.0, 1.0])})
    assert seconds_table(given).rows == ()
