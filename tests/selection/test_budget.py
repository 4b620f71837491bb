"""Best-so-far curves, their end and area, the control that repeats, and ratios with intervals."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.selection import budget

REWARDS = st.dictionaries(
    st.sampled_from("abcdef"), st.lists(st.floats(0, 50), min_size=1, max_size=9), min_size=1
)


@given(REWARDS, st.integers(1, 12))
def test_the_area_is_the_mean_of_the_ends(rewards: dict[str, list[float]], num: int) -> None:
    ends = [budget.end(rewards, count).value for count in range(1, num + 1)]
    assert all(after >= before for before, after in pairwise(ends))
    assert ends[-1] == pytest.approx(fmean(max(each[:num]) for each in rewards.values()))
    assert budget.area(rewards, num).value == pytest.approx(fmean(ends))


@given(REWARDS, st.integers(1, 9))
def test_echo_finds_nothing_after_the_first_round(
    rewards: dict[str, list[float]], first: int
) -> None:
    echoed = budget.echo(rewards, first)
    assert {problem: len(each) for problem, each in echoed.items()} == {
        problem: len(each) for problem, each in rewards.items()
    }
    found = budget.end(rewards, first).value
    assert all(
        budget.end(echoed, count).value == pytest.approx(found) for count in range(first, 10)
    )


def test_an_interval_is_over_problems() -> None:
    found = budget.end({"a": [0.0, 1.0], "b": [3.0]}, 2)
    assert (found.value, found.half_width) == (2.0, pytest.approx(1.96))
    assert budget.end({"a": [1.0]}, 1).half_width == 0


def test_a_ratio_is_of_common_problems_and_its_interval_holds_it() -> None:
    mine = {"a": [2.0], "b": [4.0], "c": [100.0]}
    found = budget.ratio(mine, {"a": [1.0], "b": [1.0], "d": [7.0]})
    assert found is not None
    assert found.value == 3.0
    assert 2.0 <= found.low < 3.0 < found.high <= 4.0


def test_a_ratio_to_nothing_is_none() -> None:
    assert budget.ratio({"a": [1.0]}, {"a": [0.0]}) is None
    assert budget.ratio({"a": [1.0]}, {"b": [1.0]}) is None
