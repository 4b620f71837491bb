"""What the training stages share: a step's numbers go to ledger, MLflow, plot and progress."""

from __future__ import annotations

import csv
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from cudal1 import tracking
from cudal1.ledger import Ledger
from tasks.progress import progress
from tasks.stage import DATA, Stage


class Steps:
    """Takes the numbers of each training step."""

    def __init__(self, ledger: Ledger, run: tracking.Run, advance: Callable[[int], None]) -> None:
        self._ledger = ledger
        self._run = run
        self._advance = advance
        self._last = 0

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Keep the numbers of one step."""
        self._ledger.add_steps(step, values)
        self._run.log(step, values)
        self._advance(max(0, step - self._last))
        self._last = max(step, self._last)


@contextmanager
def training(stage: Stage, ledger: Ledger, *, steps: int) -> Generator[Steps]:
    """A training stage's run in MLflow, its progress bar, and at the end its plot."""
    section = stage.name.split("@")[0]
    settings = getattr(stage.params, section).model_dump(mode="json")
    with (
        tracking.Run(DATA, stage.name, key=stage.run, params=settings) as run,
        progress(f"{stage.name} steps", steps) as advance,
    ):
        yield Steps(ledger, run, advance)
        run.log_checkpoint(DATA / "policy" / (stage.item or section))
    _write_plot(stage, ledger)


def _write_plot(stage: Stage, ledger: Ledger) -> None:
    """Leave `data/plots/STAGE.csv` for `dvc plots show`: a row a step.

    What a run says at its end, without a loss, is no step: its gaps would be drawn as zeros.
    """
    rows: dict[int, dict[str, float]] = {}
    for row in ledger.query("steps", stage=stage.name).to_dicts():
        rows.setdefault(row["step"], {"step": row["step"]})[row["name"]] = row["value"]
    rows = {step: row for step, row in rows.items() if "loss" in row}
    names = sorted({name for row in rows.values() for name in row} - {"step"})
    path = DATA / "plots" / f"{stage.name.replace('@', '-')}.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, ["step", *names])
        writer.writeheader()
        writer.writerows(rows[step] for step in sorted(rows))
