"""The table: for each row and group of problems, what its answers were worth.

A problem's speedup is the best of a row's answers to it. Failures count as 0 and as 1, in columns
of their own; the geometric mean is over all problems with failures as 1, since a logarithm knows no
0. `plain` columns are about the exam's first round alone, whose prompts show nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.ablation.memory import Diary, Found
from benchmarks.ablation.plan import Group, Plan
from cudal1.metrics import summarize

Numbers = dict[str, float]


def marks(diary: Diary) -> Numbers:
    """One row's numbers on one group of problems, with one seed."""
    everything = [found for batch in diary.batches.values() for found in batch]
    return {**_marks(everything, ""), **_marks(diary.batches["round 0"], "plain_")}


def _marks(answers: Sequence[Found], prefix: str) -> Numbers:
    best: dict[str, float] = {}
    for found in answers:
        best[found.problem_id] = max(best.get(found.problem_id, 0.0), found.score)
    speedups = [score or None for score in best.values()]
    as_0, as_1 = (summarize(speedups, failed_as=failed_as) for failed_as in (0.0, 1.0))
    numbers = {
        "success": fmean(found.score > 0 for found in answers),
        "answer_mean": fmean(found.score for found in answers),
        "mean_0": as_0.mean, "mean_1": as_1.mean, "median_0": as_0.median, "median_1": as_1.median,
        "geomean_1": math.exp(fmean(math.log(score or 1.0) for score in best.values())),
        "solved": as_0.num_successful, "above_101": as_0.num_meaningful,
        "problems": as_0.num_problems,
    }  # fmt: skip
    return {prefix + name: value for name, value in numbers.items()}


def curve(diary: Diary, num_parts: int) -> list[float]:
    """Mean raw reward of a training run, in equal parts of its steps."""
    steps = {
        int(name.removeprefix("step ")): fmean(found.score for found in batch)
        for name, batch in diary.batches.items()
    }
    rewards = [steps[step] for step in sorted(steps)]
    size = max(1, math.ceil(len(rewards) / num_parts))
    return [fmean(rewards[i : i + size]) for i in range(0, len(rewards), size)]


def collect(plan: Plan, state: Path) -> dict[str, dict[str, dict[int, Numbers]]]:
    """Row → group → seed → numbers, of what is finished."""
    found: dict[str, dict[str, dict[int, Numbers]]] = {}
    for row in plan.rows:
        for group in plan.exam.groups:
            for seed in plan.seeds:
                path = state / "exams" / f"{row.value}-{seed}" / f"{group.value}.jsonl"
                if path.exists() and len((diary := Diary(path)).batches) == plan.exam.rounds:
                    found.setdefault(row.value, {}).setdefault(group.value, {})[seed] = marks(diary)
    return found


def curves(plan: Plan, state: Path, num_parts: int = 5) -> dict[str, list[float]]:
    """`row seed` → mean reward in each part of its training."""
    return {
        path.stem: curve(Diary(path), num_parts)
        for path in sorted((state / "training").glob("grpo-*.jsonl"))
        if path.stat().st_size
    }


COLUMNS = {
    "success": "success", "geomean_1": "geomean (1)", "mean_1": "mean (1)", "mean_0": "mean (0)",
    "median_1": "median (1)", "median_0": "median (0)", "above_101": "> 1.01",
    "plain_success": "plain: success", "plain_geomean_1": "plain: geomean (1)",
    "plain_answer_mean": "plain: mean answer (0)",
}  # fmt: skip


def markdown(found: Mapping[str, Mapping[str, Mapping[int, Numbers]]], group: Group) -> str:
    """One group's table: means over seeds, ± their standard deviation where there are several."""
    lines = [
        f"| {group.value} | {' | '.join(COLUMNS.values())} | seeds |",
        "|---" * (len(COLUMNS) + 2) + "|",
    ]
    for row, groups in found.items():
        seeds = groups.get(group.value)
        if seeds:
            cells = [_cell([numbers[name] for numbers in seeds.values()]) for name in COLUMNS]
            lines.append(f"| {row} | {' | '.join(cells)} | {len(seeds)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    spread = f" ±{stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread}"
