"""Read the products of earlier stages for later stages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from cudal1.ledger.shards import read_parquet
from cudal1.problem import Problem, Split
from tasks.stage import DATA


def admitted_problems(split: Split | None = None) -> list[Problem]:
    """Return the problems that stage `problems` admitted."""
    frame = read_parquet(DATA / "problems.parquet").filter(pl.col("admitted"))
    columns = [name for name in frame.columns if name in Problem.model_fields]
    problems = [Problem.model_validate(row) for row in frame.select(columns).to_dicts()]
    return [problem for problem in problems if split is None or problem.split is split]


def evenly_spread(problems: Sequence[Problem], count: int) -> list[Problem]:
    """Return up to `count` problems, from all over the list."""
    step = max(1.0, len(problems) / count)
    return [problems[int(i * step)] for i in range(min(count, len(problems)))]


def product(path: Path) -> list[dict[str, object]]:
    """Return the rows of a file that an earlier stage wrote."""
    return read_parquet(path).to_dicts()
