"""Tests of means over problems and paired differences: their values, and what intervals hold."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from cudal1.selection import intervals


def test_a_mean_counts_each_problem_once() -> None:
    found = intervals.mean({"a": [0.0, 0.0, 3.0], "b": [2.0]})
    assert found is not None
    assert (found.value, found.num_problems) == (1.5, 2)
    assert 1.0 <= found.low <= 1.5 <= found.high <= 2.0


def test_one_problem_has_no_interval() -> None:
    assert intervals.mean({"a": [1.0, 2.0]}) is None
    assert intervals.difference({"a": [1.0], "b": [1.0]}, {"a": [1.0], "c": [2.0]}) is None


def test_a_difference_is_of_common_problems_alone() -> None:
    found = intervals.difference(
        {"a": [2.0], "b": [3.0], "only here": [99.0]}, {"a": [1.0], "b": [1.0], "only there": [0.0]}
    )
    assert found is not None
    assert (found.value, found.num_problems) == (1.5, 2)


def test_pairs_take_away_what_problems_differ_in() -> None:
    rng = random.Random(1)
    hard = {str(number): [10.0 * rng.random()] for number in range(24)}
    better = {problem: [reward + 0.1 + 0.01 * rng.random()] for problem, (reward,) in hard.items()}
    found = intervals.difference(better, hard)
    assert found is not None
    assert found.is_above
    assert not found.is_below
    assert found.high - found.low < 0.01
    mean = intervals.mean(better)
    assert mean is not None
    assert mean.high - mean.low > 1


def test_the_exchange_of_both_turns_the_sign() -> None:
    rng = random.Random(2)
    one = {str(number): [rng.random()] for number in range(12)}
    other = {problem: [reward + rng.gauss(0.3, 0.1)] for problem, (reward,) in one.items()}
    up, down = intervals.difference(other, one), intervals.difference(one, other)
    assert up is not None
    assert down is not None
    assert (up.is_above, down.is_below) == (True, True)
    assert up.value == pytest.approx(-down.value)


def test_intervals_hold_the_truth_about_nineteen_times_in_twenty() -> None:
    rng = random.Random(3)
    held = []
    for seed in range(200):
        drawn = {str(number): [rng.gauss(1.0, 0.5)] for number in range(24)}
        found = intervals.mean(drawn, seed=seed)
        assert found is not None
        held.append(found.low <= 1.0 <= found.high)
    assert 0.88 <= fmean(held) <= 0.99
