"""Make the tables: the scores of each row's answers by group of problems, in two ways.

*One answer* counts all answers after the exam's first round. In these rounds, prompts of rows with
exemplars show what was found so far. Stage 3 maximizes this score. *Best of N* counts the best of a
row's answers to each problem, as the paper does (one code a task; 6.1). With a dozen answers a
problem, drawing alone comes so near to a problem's best that no method has much to add there.

Failures count as 0 and as 1, in columns of their own. Geometric means take them as 1, since a
logarithm knows no 0. `plain` columns are about the first round alone, with prompts that show no
exemplars. `copies` are answers equal to one of the sources that their prompt showed.

*Echo* is a control without a model: each later answer is the best of the first round to its
problem.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from benchmarks.ablation.memory import Diary, Found
from benchmarks.ablation.plan import Group, Plan, Row
from benchmarks.ablation.steps import SUFFIX
from cudal1.selection.metrics import SpeedupSummary, summarize

Numbers = dict[str, float]


def marks(diary: Diary) -> Numbers:
    """Return one row's numbers on one group of problems, with one seed."""
    first, later = diary.batches["round 0"], later_answers(diary)
    return {
        **_each(later, "answer_"),
        **_each(first, "plain_"),
        "answer_copies": fmean(found.is_copy for found in later),
        "answer_echo_mean_0": fmean(best_scores(first).values()),
        **_best([found for batch in diary.batches.values() for found in batch]),
    }


def later_answers(diary: Diary) -> list[Found]:
    """Return all answers but the first round's."""
    return [f for name, batch in diary.batches.items() if name != "round 0" for f in batch]


def _each(answers: Sequence[Found], prefix: str) -> Numbers:
    """Return numbers in which every answer counts."""
    as_0, as_1 = _summaries([found.score for found in answers])
    numbers = {
        "success": fmean(found.score > 0 for found in answers),
        "mean_0": as_0.mean,
        "mean_1": as_1.mean,
        "median_0": as_0.median,
        "median_1": as_1.median,
        "geomean_1": _geomean([found.score for found in answers]),
        "share_above_101": as_0.num_meaningful / len(answers),
    }
    return {prefix + name: value for name, value in numbers.items()}


def _best(answers: Sequence[Found]) -> Numbers:
    """Return numbers in which each problem's best answer counts."""
    best = best_scores(answers)
    as_0, as_1 = _summaries(list(best.values()))
    return {
        "mean_0": as_0.mean,
        "mean_1": as_1.mean,
        "median_0": as_0.median,
        "median_1": as_1.median,
        "geomean_1": _geomean(list(best.values())),
        "solved": as_0.num_successful,
        "above_101": as_0.num_meaningful,
        "problems": as_0.num_problems,
    }


def best_scores(answers: Sequence[Found]) -> dict[str, float]:
    """Return each problem's best speedup; 0 without success."""
    best: dict[str, float] = {}
    for found in answers:
        best[found.problem_id] = max(best.get(found.problem_id, 0.0), found.score)
    return best


def _summaries(scores: Sequence[float]) -> tuple[SpeedupSummary, SpeedupSummary]:
    """Return the summaries with failures as 0, and as 1."""
    speedups = [score or None for score in scores]
    return summarize(speedups, failed_as=0.0), summarize(speedups, failed_as=1.0)


def _geomean(scores: Sequence[float]) -> float:
    return math.exp(fmean(math.log(score or 1.0) for score in scores))


def curve(diary: Diary, num_parts: int) -> list[float]:
    """Return the mean raw reward of a training run, in equal parts of its steps."""
    steps = {
        int(name.removeprefix("step ")): fmean(found.score for found in batch)
        for name, batch in diary.batches.items()
    }
    rewards = [steps[step] for step in sorted(steps)]
    size = max(1, math.ceil(len(rewards) / num_parts))
    return [fmean(rewards[i : i + size]) for i in range(0, len(rewards), size)]


def collect(plan: Plan, states: Sequence[Path]) -> dict[str, dict[str, dict[int, Numbers]]]:
    """Return the numbers of finished exams, by row, group and seed."""
    found: dict[str, dict[str, dict[int, Numbers]]] = {}
    for row in plan.rows:
        for group in plan.exam.groups:
            for seed, diary in finished(plan, states, row, group).items():
                found.setdefault(row.value, {}).setdefault(group.value, {})[seed] = marks(diary)
    return found


def finished(plan: Plan, states: Sequence[Path], row: Row, group: Group) -> dict[int, Diary]:
    """Return a row's finished exams by seed, each from the first state that has the seed."""
    found: dict[int, Diary] = {}
    for seed, state in itertools.product(plan.seeds, states):
        path = state / "exams" / f"{row.value}-{seed}" / f"{group.value}.jsonl"
        if seed not in found and path.exists():
            diary = Diary(path)
            if len(diary.batches) == plan.exam.rounds:
                found[seed] = diary
    return found


def curves(states: Sequence[Path], num_parts: int = 5) -> dict[str, list[float]]:
    """Return the mean reward in each part of a training, by `row-seed`."""
    return {
        path.stem: curve(Diary(path), num_parts)
        for state in reversed(states)
        for path in sorted((state / "training").glob("grpo-*.jsonl"))
        if path.stat().st_size and not path.name.endswith(SUFFIX)
    }


ANSWER_COLUMNS = {
    "answer_success": "success",
    "answer_mean_0": "mean (0)",
    "answer_mean_1": "mean (1)",
    "answer_median_0": "median (0)",
    "answer_median_1": "median (1)",
    "answer_geomean_1": "geomean (1)",
    "answer_share_above_101": "share > 1.01",
    "answer_copies": "copies",
    "answer_echo_mean_0": "echo: mean (0)",
    "plain_success": "plain: success",
    "plain_mean_0": "plain: mean (0)",
}
BEST_COLUMNS = {
    "solved": "solved",
    "mean_0": "mean (0)",
    "mean_1": "mean (1)",
    "median_0": "median (0)",
    "median_1": "median (1)",
    "geomean_1": "geomean (1)",
    "above_101": "> 1.01",
}


def caption(plan: Plan) -> str:
    """Return the plan's title, and where the plan differs from the paper."""
    said = [f"{plan.title}."]
    if plan.rl.smooth_log:
        said.append(
            "Equation 6 is of log(1 + reward): one problem's large gains would flatten all others'."
        )
    if plan.rl.plain_share:
        said.append(
            f"Of the prompts in training {plan.rl.plain_share:.0%} show no exemplars in any row, "
            "so that plain prompts are not forgotten."
        )
    return " ".join(said)


def markdown(found: Mapping[str, Mapping[str, Mapping[int, Numbers]]], plan: Plan) -> str:
    """Return both tables of each group: means over seeds, ± deviation if there are several."""
    answers = plan.exam.rounds * plan.exam.answers_per_round
    return "\n\n".join(
        _table(found, group.value, title, columns)
        for group in plan.exam.groups
        for title, columns in (("one answer", ANSWER_COLUMNS), (f"best of {answers}", BEST_COLUMNS))
    )


def _table(
    found: Mapping[str, Mapping[str, Mapping[int, Numbers]]],
    group: str,
    title: str,
    columns: Mapping[str, str],
) -> str:
    lines = [
        f"| {group}: {title} | {' | '.join(columns.values())} | seeds |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for row, groups in found.items():
        seeds = groups.get(group)
        if seeds:
            cells = [_cell([numbers[name] for numbers in seeds.values()]) for name in columns]
            lines.append(f"| {row} | {' | '.join(cells)} | {len(seeds)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    spread = f" ±{stdev(values):.2f}" if len(values) > 1 else ""
    return f"{fmean(values):.2f}{spread}"
