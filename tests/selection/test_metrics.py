"""Tests of the paper's numbers against slow loops."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.selection.metrics import excess_share, fast_p, summarize

SPEEDUPS = st.lists(st.none() | st.floats(0.01, 200), min_size=1, max_size=30)


def _percentile(values: list[float], share: float) -> float:
    """Return a percentile, linear between neighbours, ends included."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


@given(SPEEDUPS, st.sampled_from([0.0, 1.0]))
def test_a_summary_equals_that_of_a_slow_loop(
    speedups: list[float | None], failed_as: float
) -> None:
    row = summarize(speedups, failed_as=failed_as)
    counted = [failed_as if s is None else s for s in speedups]
    total, product, successes, meaningful = 0.0, 0.0, 0, 0
    for value in speedups:
        total += failed_as if value is None else value
        if value is not None:
            successes += 1
            product += math.log(value)
            meaningful += value > 1.01
    assert row.num_problems == len(speedups)
    assert row.mean == pytest.approx(total / len(speedups))
    assert row.maximum == max(counted)
    assert row.percentile_75 == pytest.approx(_percentile(counted, 0.75))
    assert row.median == pytest.approx(_percentile(counted, 0.5))
    assert row.percentile_25 == pytest.approx(_percentile(counted, 0.25))
    assert row.num_successful == successes
    assert row.num_meaningful == meaningful
    expected = math.exp(product / successes) if successes else 1.0
    assert row.geometric_mean == pytest.approx(expected)


def test_failures_count_by_the_requested_convention() -> None:
    assert summarize([None, 2.0], failed_as=0.0).mean == 1.0
    assert summarize([None, 2.0], failed_as=1.0).mean == 1.5


def test_a_speedup_of_one_per_cent_is_not_meaningful() -> None:
    assert summarize([1.0, 1.01, 1.02], failed_as=1.0).num_meaningful == 1


def test_failures_alone_give_no_gain() -> None:
    row = summarize([None, None], failed_as=1.0)
    assert (row.num_successful, row.num_meaningful, row.geometric_mean) == (0, 0, 1.0)


@given(SPEEDUPS, st.floats(0, 5))
def test_fast_p_counts_faster_successes_over_all_problems(
    speedups: list[float | None], p: float
) -> None:
    count = 0
    for value in speedups:
        if value is not None and value > p:
            count += 1
    assert fast_p(speedups, p) == count / len(speedups)


def test_an_empty_list_of_problems_has_no_numbers() -> None:
    with pytest.raises(ValueError, match="no problems"):
        summarize([], failed_as=0.0)
    with pytest.raises(ValueError, match="no problems"):
        fast_p([], 1.0)


@given(SPEEDUPS, st.integers(1, 6))
def test_the_share_of_the_largest_equals_that_of_a_slow_loop(
    speedups: list[float | None], count: int
) -> None:
    gains = [value - 1 for value in speedups if value is not None and value > 1]
    carried, rest = 0.0, list(gains)
    for _ in range(min(count, len(gains))):
        largest = max(rest)
        rest.remove(largest)
        carried += largest
    if gains:
        assert excess_share(speedups, count) == pytest.approx(carried / sum(gains))
    else:
        assert excess_share(speedups, count) is None


def test_five_outliers_may_carry_nearly_all() -> None:
    share = excess_share([1.02] * 95 + [100.0] * 5, 5)
    assert share is not None
    assert share > 0.99
