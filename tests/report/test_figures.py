from __future__ import annotations

import re

import pytest

from cudal1.report import curves, figures
from cudal1.report.figure import Figure
from cudal1.report.theme import DARK, standalone


@pytest.fixture(scope="module")
def drawn(realistic) -> list[Figure]:
    found = [
        figures.speedup_figure(realistic), figures.success_speedup_figure(realistic),
        *curves.policy_figures(realistic), *curves.learning_figures(realistic),
        figures.pair_figure(realistic), figures.spread_figure(realistic),
    ]  # fmt: skip
    assert None not in found
    return [figure for figure in found if figure is not None]


def test_nothing_is_drawn_from_nothing(empty):
    assert figures.speedup_figure(empty) is None
    assert figures.success_speedup_figure(empty) is None
    assert curves.policy_figures(empty) == []
    assert curves.learning_figures(empty) == []
    assert figures.pair_figure(empty) is None
    assert figures.spread_figure(empty) is None


def test_every_colour_has_a_dark_counterpart(drawn):
    for figure in drawn:
        colours = set(re.findall(r'(?:fill|stroke)="(#[0-9a-fA-F]{3,8})"', figure.svg))
        assert colours
        assert colours <= set(DARK), figure.name


def test_figures_have_no_ids_that_could_clash_on_one_page(drawn):
    assert not any(re.search(r'\bid="|url\(#', figure.svg) for figure in drawn)


def test_a_curve_is_drawn_for_each_number_that_a_stage_logged(realistic):
    names = {figure.name for figure in curves.learning_figures(realistic)}
    assert {"curve-sft-loss", "curve-selfsup-r1-loss", "curve-rl-kl", "curve-rl-entropy"} <= names
    assert "curve-rl-learning-rate" not in names


def test_one_step_makes_no_curve(made):
    step = {"stage": "sft", "step": 1, "name": "loss", "value": 1.0}
    assert curves.learning_figures(made.build({"steps": [step]})) == []


def test_numbers_that_are_not_finite_do_not_spoil_a_curve(made):
    values = (1.0, float("nan"), float("inf"), 0.5)
    steps = [
        {"stage": "sft", "step": step, "name": "loss", "value": value}
        for step, value in enumerate(values)
    ]
    (figure,) = curves.learning_figures(made.build({"steps": steps}))
    assert "NaN" not in figure.svg


def test_a_speedup_of_zero_does_not_spoil_the_logarithmic_axis(made):
    given = made.build({
        "problems": [made.problem(1), made.problem(2)],
        "verdicts": [made.verdict("p11", "a", 0.0), made.verdict("p12", "b", 2.0)],
    })  # fmt: skip
    figure = figures.speedup_figure(given)
    assert figure is not None
    assert "NaN" not in figure.svg


def test_the_pairs_are_those_of_the_smallest_certified_gain(made):
    sample = {"session": 0, "position": 0, "num_calls": 1, "burst_us": 9.0, "net_us": 8.0}
    given = made.build({
        "problems": [made.problem()],
        "verdicts": [
            made.verdict("p11", "even", 1.0), made.verdict("p11", "close", 1.05),
            made.verdict("p11", "far", 9.0),
        ],
        "samples": [
            {**sample, "candidate_id": candidate, "quad": quad, "role": "candidate"}
            for candidate in ("even", "close", "far") for quad in range(3)
        ],
    })  # fmt: skip
    figure = figures.pair_figure(given)
    assert figure is not None
    assert "candidate close," in figure.caption


def test_a_figure_alone_is_one_svg_that_follows_the_readers_preference(drawn):
    alone = standalone(drawn[0].svg)
    assert alone.startswith("<svg")
    assert alone.count("<svg") == 1
    assert "prefers-color-scheme: dark" in alone


@pytest.mark.parametrize("fastest", [1.2, 200.0])
def test_the_axis_of_speedups_is_marked_at_parity(made, fastest):
    given = made.build({
        "problems": [made.problem()], "verdicts": [made.verdict("p11", "a", fastest)],
    })  # fmt: skip
    figure = figures.speedup_figure(given)
    assert figure is not None
    assert ">1×<" in figure.svg  # noqa: RUF001
