from __future__ import annotations

import pytest
from pydantic import ValidationError

from cudal1.report.numbers import percent, times
from cudal1.report.tables.table import Row, Table, markdown_text, table_markdown


def a_table(*rows: Row) -> Table:
    return Table(
        title="T", caption="C", columns=("name", "number"), rows=rows, nothing_yet="Nothing yet."
    )


def test_a_row_of_another_width_is_refused():
    with pytest.raises(ValidationError, match="1 cells, 2 columns"):
        a_table(Row(cells=("alone",)))


def test_a_hostile_cell_stays_one_cell_of_text():
    shown = table_markdown(a_table(Row(cells=("a|b\n<b>`x`", "1"))))
    assert "| a\\|b &lt;b&gt;\\`x\\` | 1 |" in shown


def test_a_table_without_rows_says_so_and_has_no_heading_row():
    shown = table_markdown(a_table())
    assert "Nothing yet." in shown
    assert "|" not in shown


def test_markdown_links_and_mentions_are_disarmed():
    assert markdown_text("[x](y) @someone") == "\\[x\\](y) &#64;someone"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.987, "0.99×"), (1.0, "1.00×"), (12.34, "12.3×"), (449.4, "449×")],  # noqa: RUF001
)
def test_speedups_show_three_digits(value, shown):
    assert times(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0 %"), (1.0, "100 %"), (0.004, "0.4 %"), (0.996, "99.6 %"), (0.5, "50 %")],
)
def test_only_an_exact_share_is_shown_as_nothing_or_all(value, shown):
    assert percent(value) == shown
