"""Tests of drawings of quads as text."""

from __future__ import annotations

import pytest

from cudal1.cli.showing.timing import (
    BAR_CHARS,
    NUM_BINS,
    NUM_COLUMNS,
    histogram,
    quad_speedups,
    sparkline,
)


def burst(quad: int, role: str, net_us: float, session: int = 0) -> dict[str, object]:
    return {"session": session, "quad": quad, "role": role, "net_us": net_us}


def test_a_quad_says_its_shortest_reference_over_its_shortest_candidate():
    samples = [
        burst(1, "candidate", 5.0),
        burst(1, "reference", 10.0),
        burst(0, "reference", 12.0),
        burst(0, "reference", 9.0),
        burst(0, "candidate", 4.0),
        burst(0, "candidate", 3.0),
        burst(0, "empty", 1.0),
        burst(0, "reference", 1.0, session=1),
    ]
    assert quad_speedups(samples) == [3.0, 2.0]


def test_a_quad_without_both_sides_or_without_time_says_nothing():
    samples = [burst(0, "reference", 9.0), burst(1, "reference", 9.0), burst(1, "candidate", 0.0)]
    assert quad_speedups(samples) == []


@pytest.mark.parametrize(
    ("values", "line"), [([], ""), ([2.0], "▁"), ([1.0, 2.0], "▁█"), ([2.0, 2.0], "▁▁")]
)
def test_a_line_has_a_column_for_each_value(values, line):
    assert sparkline(values) == line


def test_a_long_line_is_cut_to_its_columns():
    assert len(sparkline([float(i) for i in range(10 * NUM_COLUMNS + 1)])) <= NUM_COLUMNS


def test_a_histogram_counts_each_value_once():
    values = [1.0 + i / 100 for i in range(200)] + [50.0]
    rows = histogram(values)
    assert len(rows) == NUM_BINS
    assert sum(int(bar.split()[-1]) for _, bar in rows) == len(values)
    assert max(bar.count("█") for _, bar in rows) == BAR_CHARS


def test_a_histogram_of_equal_values_has_one_row():
    assert histogram([1.5] * 3) == [("1.500x", f"{'█' * BAR_CHARS} 3")]
    assert histogram([]) == []
