"""What a training stage leaves to be drawn."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cudal1.ledger import Ledger
from cudal1.params import Params
from tasks.stage import Stage
from tasks.training import _write_plot

PARAMS = Params.load(Path(__file__).parents[2] / "params.yaml")


@pytest.fixture
def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """The plot of three steps and the totals that follow them."""
    monkeypatch.setattr("tasks.training.DATA", tmp_path)
    with Ledger.open(tmp_path) as ledger:
        ledger.begin("selfsup@r1")
        for step in (15, 5, 10):
            ledger.add_steps(step, {"loss": 1.0 / step, "entropy": 0.5})
        ledger.add_steps(16, {"entropy": 0.4, "total_flos": 1e12})
        _write_plot(Stage(name="selfsup@r1", item="r1", params=PARAMS, run="r"), ledger)
    with (tmp_path / "plots" / "selfsup-r1.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_a_plot_has_a_row_a_step_in_their_order(drawn: list[dict[str, str]]) -> None:
    assert [row["step"] for row in drawn] == ["5", "10", "15"]


def test_a_plot_has_no_gaps_that_would_be_drawn_as_zeros(drawn: list[dict[str, str]]) -> None:
    assert set(drawn[0]) == {"step", "loss", "entropy"}
    assert all(value for row in drawn for value in row.values())
