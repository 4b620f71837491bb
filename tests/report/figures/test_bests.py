from __future__ import annotations

import re
from typing import Any

import pytest

from cudal1.report.figures import bests
from cudal1.report.figures.figure import Figure


def _rise(problem: str, step: int, best: float, stage: str = "rl") -> dict[str, Any]:
    return {"stage": stage, "problem_id": problem, "step": step, "best_speedup": best}


@pytest.fixture
def figures(made) -> Any:
    """Return the figures of rises on problems p11, p12 …, of a run of nine steps."""

    def figures(*rises: dict[str, Any], num_problems: int = 2) -> list[Figure]:
        steps = [{"stage": "rl", "step": 9, "name": "loss", "value": 1.0}]
        problems = [made.problem(number) for number in range(1, 1 + num_problems)]
        given = made.build({"problems": problems, "steps": steps, "rises": list(rises)})
        return bests.best_figures(given)

    return figures


def _labels(figure: Figure) -> list[str]:
    return re.findall(r">(L\d/\d+_[^<]*)<", figure.svg)


def test_each_problem_has_a_picture_and_the_largest_comes_first(figures):
    (figure,) = figures(_rise("p11", 1, 1.2), _rise("p12", 2, 1.1), _rise("p12", 5, 3.0))
    assert [label[:5] for label in _labels(figure)] == ["L1/02", "L1/01"]
    assert figure.name == "best-rl"


def test_a_line_goes_from_one_at_the_start_to_the_last_step(figures):
    (figure,) = figures(_rise("p11", 3, 2.0), num_problems=1)
    (path,) = re.findall(r'<path d="(M[^"]*H[^"]*|M[^"]*L[^"]*)"[^>]*stroke="#0969da"', figure.svg)
    points = [tuple(map(float, pair)) for pair in re.findall(r"(-?[\d.]+),(-?[\d.]+)", path)]
    assert points[0] == (0.0, float(bests.CELL_HEIGHT))
    assert points[-1] == (float(bests.CELL_WIDTH), 0.0)


def test_a_removed_problem_is_left_out(figures):
    (figure,) = figures(_rise("p11", 3, 2.0), _rise("gone", 2, 3.0))
    assert [label[:5] for label in _labels(figure)] == ["L1/01"]
    assert figures(_rise("gone", 2, 3.0)) == []


def test_a_value_below_one_is_drawn_at_one(figures):
    (figure,) = figures(_rise("p11", 1, 0.4), _rise("p12", 1, 2.0))
    assert "NaN" not in figure.svg
    assert len(_labels(figure)) == 2


def test_the_number_of_omitted_problems_is_shown(figures, monkeypatch):
    monkeypatch.setattr(bests, "NUM_BESTS", 1)
    (figure,) = figures(_rise("p11", 1, 1.2), _rise("p12", 1, 2.0))
    assert [label[:5] for label in _labels(figure)] == ["L1/02"]
    assert "problems left out: 1." in figure.caption


def test_each_stage_has_a_figure(figures):
    found = figures(_rise("p11", 1, 1.2), _rise("p11", 1, 1.5, stage="rl@night"))
    assert {figure.name for figure in found} == {"best-rl", "best-rl-night"}
