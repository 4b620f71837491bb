"""Compare each row with the row it is built on: differences by problem, with intervals.

Rows answer the same problems, and problems differ far more than rows do. So the difference is taken
within each problem, and problems are drawn again (bootstrap). The interval covers other problems of
this kind with these trained policies. The tables' ± shows what another seed of training does.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.ablation import table
from benchmarks.ablation.memory import Diary
from benchmarks.ablation.plan import Plan, Row

BUILT_ON = (
    (Row.EVOLVE, Row.VANILLA),
    (Row.SFT, Row.VANILLA),
    (Row.SELFSUP, Row.SFT),
    (Row.GRPO, Row.SELFSUP),
    (Row.BUCKET, Row.GRPO),
    (Row.RANDOM, Row.GRPO),
    (Row.ISLAND, Row.GRPO),
    (Row.BUCKET, Row.RANDOM),
)
NUM_DRAWS = 4000


@dataclass(frozen=True)
class Gain:
    """The gain of a row over the row it is built on; fields are mean, low and high end (95 %)."""

    group: str
    row: str
    base: str
    one_answer: tuple[float, float, float]
    """Difference of mean speedups, failures as 0, of answers after the first round."""
    best: tuple[float, float, float]
    """Ratio of geometric means of the problems' best, failures as 1."""


def collect(plan: Plan, states: Sequence[Path]) -> list[Gain]:
    """Return the gain of each group and pair of rows, over the seeds that both have finished."""
    found: list[Gain] = []
    for group in plan.exam.groups:
        for row, base in BUILT_ON:
            mine, theirs = (table.finished(plan, states, each, group) for each in (row, base))
            pairs = [(mine[seed], theirs[seed]) for seed in sorted(mine.keys() & theirs.keys())]
            if pairs:
                ratio, low, high = (math.exp(each) for each in _gain(pairs, _log_best))
                found.append(
                    Gain(
                        group=group.value,
                        row=row.value,
                        base=base.value,
                        one_answer=_gain(pairs, _mean_answers),
                        best=(ratio, low, high),
                    )
                )
    return found


def markdown(gains: Sequence[Gain]) -> str:
    """Return a table with a line for each gain."""
    lines = [
        "| gain (95 % interval over problems) | one answer, mean (0) | best of all, geomean (1) |",
        "|---|---|---|",
    ]
    lines += [
        f"| {gain.group}: {gain.row} over {gain.base} | {_said(gain.one_answer, '+.2f')} | "
        f"{_said(gain.best, '.2f', 'x')} |"
        for gain in gains
    ]
    return "\n".join(lines)


def _gain(
    pairs: Sequence[tuple[Diary, Diary]], value: Callable[[Diary], dict[str, float]]
) -> tuple[float, float, float]:
    """Return the mean difference, and the ends of its interval."""
    values = [(value(mine), value(theirs)) for mine, theirs in pairs]
    found = [fmean(mine[p] - theirs[p] for mine, theirs in values) for p in values[0][0]]
    rng = random.Random(0)
    drawn = sorted(fmean(rng.choices(found, k=len(found))) for _ in range(NUM_DRAWS))
    return fmean(found), drawn[NUM_DRAWS // 40], drawn[-NUM_DRAWS // 40]


def _mean_answers(diary: Diary) -> dict[str, float]:
    """Return each problem's mean speedup of answers after the first round, failures as 0."""
    scores: dict[str, list[float]] = {}
    for found in table.later_answers(diary):
        scores.setdefault(found.problem_id, []).append(found.score)
    return {problem_id: fmean(mine) for problem_id, mine in scores.items()}


def _log_best(diary: Diary) -> dict[str, float]:
    """Return the logarithm of each problem's best speedup, failures as 1."""
    everything = [found for batch in diary.batches.values() for found in batch]
    return {p: math.log(score or 1.0) for p, score in table.best_scores(everything).items()}


def _said(three: Sequence[float], form: str, sign: str = "") -> str:
    mean, low, high = (f"{each:{form}}{sign}" for each in three)
    return f"{mean} ({low} to {high})"
