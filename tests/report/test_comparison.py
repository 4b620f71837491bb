"""Tests of two sources side by side."""

from __future__ import annotations

import random

import pytest

from cudal1.report.comparison import compared, cut, lines_of, listing
from cudal1.report.limits import NUM_CHARS, NUM_LINES


def whole(shown) -> str:
    return "".join(run.text for run in shown.runs)


def own(shown) -> list[str]:
    return [run.text for run in shown.runs if run.is_own]


def test_the_runs_of_a_source_join_to_the_source():
    rng = random.Random(4)
    for _ in range(60):
        first, second = (
            "".join(rng.choice(["a\n", "b\r\n", "\n", "  c", "</code>\n"]) for _ in range(12))
            for _ in range(2)
        )
        left, right = compared(first, second)
        assert (whole(left), whole(right)) == (first, second)


def test_only_lines_that_the_other_source_lacks_are_marked():
    left, right = compared("a\nb\nc\n", "a\nx\nc\nd\n")
    assert own(left) == ["b\n"]
    assert own(right) == ["x\n", "d\n"]


def test_a_last_line_without_its_end_is_the_same_line():
    left, right = compared("a\nb", "a\nb\n")
    assert own(left) == own(right) == []


@pytest.mark.parametrize("source", ["x\n" * (NUM_LINES + 30), "y" * (NUM_CHARS + 30) + "\nz\n"])
def test_a_long_source_is_cut_and_marked(source):
    shown = listing(source)
    assert whole(shown) == source[: len(whole(shown))]
    assert len(whole(shown)) <= NUM_CHARS
    assert shown.num_lines_left_out > 0


def test_a_short_source_is_shown_whole():
    assert cut("a\nb\n") == ("a\nb\n", 0)
    assert cut("") == ("", 0)


def test_lines_end_where_python_ends_them():
    source = "x = '\x0c\x85\u2028\v'\ny = 1\n"
    assert lines_of(source) == ["x = '\x0c\x85\u2028\v'\n", "y = 1\n"]
    assert cut(source) == (source, 0)
