from __future__ import annotations

import pytest

from cudal1.report.publish import FIGURE, PAGE, SUMMARY, publish

pytestmark = pytest.mark.slow


def test_equal_input_makes_equal_bytes(realistic, tmp_path):
    for name in ("one", "two"):
        publish(realistic, tmp_path / name)
    for name in (PAGE, SUMMARY, FIGURE):
        first, second = ((tmp_path / folder / name).read_bytes() for folder in ("one", "two"))
        assert first == second, name


def test_a_figure_of_an_earlier_run_is_removed(realistic, empty, tmp_path):
    publish(realistic, tmp_path)
    publish(empty, tmp_path)
    assert not (tmp_path / FIGURE).exists()


def test_the_summary_holds_the_headlines_and_the_tables(realistic, tmp_path):
    publish(realistic, tmp_path)
    shown = (tmp_path / SUMMARY).read_text("utf-8")
    assert "Null test: 1.00" in shown
    assert "(as table 4)" in shown
    assert "(as table 5)" in shown
