"""Tests of the benchmarks of `cudal1 optimize`: kills at drawn moments, and sums."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.optimizing.example_modules import MODULES, summed_up
from benchmarks.optimizing.kills import kill_often

ROW = {"certified": 1.2, "first_gain_s": 20.0, "is_loss": False}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_at_drawn_moments_optimize_loses_no_fact_and_pays_for_none_twice(
    tmp_path: Path,
) -> None:
    found = kill_often(tmp_path, num_kills=4, seed=1)
    assert (found["num_lost"], found["num_paid_twice"]) == (0, 0)
    assert found["last_exit_code"] == 0, (found["last_said"], found["verdicts"])
    assert found["num_facts"] > 0


def test_small_gains_do_not_count() -> None:
    rows = {"a": ROW, "b": {**ROW, "certified": 1.05}, "c": {**ROW, "certified": None}}
    assert summed_up(rows)["num_gains"] == 1


def test_modules_without_a_gain_have_no_time_to_the_first_gain() -> None:
    assert summed_up({"a": {**ROW, "first_gain_s": None}})["median_first_gain_s"] is None


def test_there_are_twenty_example_modules() -> None:
    assert len(list(MODULES.glob("*.py"))) == 20
