from __future__ import annotations

import re

import pytest

from cudal1.report import seconds
from cudal1.report.figures import bests, bursts, curves, figures
from cudal1.report.figures.figure import Figure
from cudal1.report.figures.theme import DARK, standalone


@pytest.fixture(scope="module")
def drawn(realistic) -> list[Figure]:
    found = [
        figures.speedup_figure(realistic),
        figures.success_speedup_figure(realistic),
        *curves.policy_figures(realistic),
        *curves.learning_figures(realistic),
        *bests.best_figures(realistic),
        *seconds.seconds_figures(realistic),
        bursts.closest_figure(realistic),
        figures.spread_figure(realistic),
    ]
    assert None not in found
    return [figure for figure in found if figure is not None]


def test_empty_input_gives_no_figure(empty):
    assert figures.speedup_figure(empty) is None
    assert figures.success_speedup_figure(empty) is None
    assert curves.policy_figures(empty) == []
    assert curves.learning_figures(empty) == []
    assert bests.best_figures(empty) == []
    assert seconds.seconds_figures(empty) == []
    assert bursts.closest_figure(empty) is None
    assert figures.spread_figure(empty) is None


@pytest.mark.slow
def test_every_colour_has_a_dark_counterpart(drawn):
    for figure in drawn:
        colours = set(re.findall(r'(?:fill|stroke)="(#[0-9a-fA-F]{3,8})"', figure.svg))
        assert colours
        assert colours <= set(DARK), figure.name


def test_figures_have_no_ids_that_could_clash_on_one_page(drawn):
    assert not any(re.search(r'\bid="|url\(#', figure.svg) for figure in drawn)


@pytest.mark.slow
def test_a_curve_is_drawn_for_each_number_that_a_stage_logged(realistic):
    names = {figure.name for figure in curves.learning_figures(realistic)}
    assert {"curve-sft-loss", "curve-selfsup-r1-loss", "curve-rl-kl", "curve-rl-entropy"} <= names
    assert {"curve-rl-best-speedup", "curve-rl-hacked", "curve-rl-idle"} <= names
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
    given = made.build(
        {
            "problems": [made.problem(1), made.problem(2)],
            "verdicts": [made.verdict("p11", "a", 0.0), made.verdict("p12", "b", 2.0)],
        }
    )
    figure = figures.speedup_figure(given)
    assert figure is not None
    assert "NaN" not in figure.svg


def test_a_curve_has_an_interval_where_there_are_enough_steps(made):
    def figure(num_steps: int) -> Figure:
        steps = [
            {"stage": "rl", "step": step, "name": "reward_raw", "value": step % 3}
            for step in range(num_steps)
        ]
        return curves.learning_figures(made.build({"steps": steps}))[0]

    assert "95 % interval" in figure(40).caption
    assert 'opacity="0.18"' in figure(40).svg
    assert "too few for an interval" in figure(6).caption
    assert 'opacity="0.18"' not in figure(6).svg


def test_the_interval_of_a_share_lies_between_zero_and_one(made):
    steps = [
        {"stage": "rl", "step": step, "name": "success", "value": step % 2} for step in range(40)
    ]
    (figure,) = curves.learning_figures(made.build({"steps": steps}))
    labels = {float(text) for text in re.findall(r">(-?\d\.\d)<", figure.svg)}
    assert labels
    assert min(labels) >= 0
    assert max(labels) <= 1


def test_a_curve_of_many_steps_is_a_small_picture_and_says_so(made):
    steps = [
        {"stage": "rl", "step": step, "name": "kl", "value": step % 7} for step in range(30_000)
    ]
    (figure,) = curves.learning_figures(made.build({"steps": steps}))
    assert len(figure.svg) < 20_000
    assert "a mean of 200 of 30,000 steps" in figure.caption


@pytest.mark.parametrize(("loss", "is_told"), [("dft", True), ("nll", False)])
def test_a_loss_has_the_name_from_the_stages_parameters(made, loss, is_told):
    steps = [{"stage": "selfsup@r1", "step": s, "name": "loss", "value": s} for s in range(9)]
    given = made.build({"steps": steps}, params={"selfsup.loss": loss, "sft.loss": "dft"})
    assert ("dft" in curves.learning_figures(given)[0].caption) is is_told


def test_every_figure_has_a_text_for_screen_readers(drawn):
    for figure in drawn:
        assert re.match(r'<svg [^>]*role="img"', figure.svg), figure.name
        assert re.match(r'<svg [^>]*aria-label="Chart. [^"]{10,}"', figure.svg), figure.name


def test_hostile_names_in_a_figure_stay_text(made):
    name = '</text></svg><script>alert(1)</script> class="x"'
    given = made.build(
        {
            "problems": [made.problem(split="heldout")],
            "verdicts": [made.verdict("p11", "a")],
            "completions": [made.answer("p11", "a", stage=f"sft@{name}", provider="policy")],
        }
    )
    for figure in curves.policy_figures(given):
        assert "<script" not in figure.svg
        assert figure.svg.count("<svg") == figure.svg.count("</svg>") == 1


@pytest.mark.parametrize(
    ("status", "names"),
    [("correct", ["policy-success", "policy-reward"]), ("incorrect", ["policy-success"])],
)
def test_rewards_are_drawn_where_there_are_any(made, status, names):
    given = made.build(
        {
            "problems": [made.problem(split="heldout")],
            "verdicts": [made.verdict("p11", "a", status=status)],
            "completions": [made.answer("p11", "a", stage="sft", provider="policy")],
        }
    )
    assert [figure.name for figure in curves.policy_figures(given)] == names


def test_a_separate_figure_is_one_svg_that_follows_the_readers_preference(drawn):
    alone = standalone(drawn[0].svg)
    assert alone.startswith("<svg")
    assert alone.count("<svg") == 1
    assert "prefers-color-scheme: dark" in alone


@pytest.mark.parametrize("fastest", [1.2, 200.0])
def test_the_axis_of_speedups_is_marked_at_parity(made, fastest):
    given = made.build(
        {"problems": [made.problem()], "verdicts": [made.verdict("p11", "a", fastest)]}
    )
    figure = figures.speedup_figure(given)
    assert figure is not None
    assert ">1×<" in figure.svg  # noqa: RUF001
