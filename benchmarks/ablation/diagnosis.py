"""Diagnose training: each number in the first fifth of a run's steps and in the last.

The table helps to find the reason when rows come out in the wrong order. These are possible:

* answers that succeed no more often, are no faster, or are cut off at the longest length;
* a policy that ran away from its start, or draws the same answer again and again;
* groups of equal rewards, from which nothing is learned;
* prompts that grew, exemplars that are copied, cheats, time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from benchmarks.ablation import steps
from benchmarks.ablation.plan import Plan, Row
from benchmarks.ablation.steps import Numbers, Steps

REINFORCED = {
    "reward_raw": ("reward", ".2f"),
    "success": ("success", ".2f"),
    "hacked": ("hacked", ".2f"),
    "no_code": ("no code", ".2f"),
    "completions/clipped_ratio": ("cut off", ".2f"),
    "kl": ("KL", ".3f"),
    "entropy": ("entropy", ".3f"),
    "clip_ratio/region_mean": ("clipped", ".3f"),
    "grad_norm": ("gradient", ".2f"),
    "frac_reward_zero_std": ("equal groups", ".2f"),
    "reused": ("reused", ".2f"),
    "with_exemplars": ("with exemplars", ".2f"),
    "copied": ("copied", ".2f"),
    "prompt_tokens": ("prompt tokens", ".0f"),
    "sampling_s": ("sampling s", ".1f"),
    "judging_s": ("judging s", ".1f"),
    "updating_s": ("updating s", ".1f"),
}
"""Column and form of each number. `world.numbers` describes the world's own numbers."""
FINE_TUNED = {
    "loss": ("loss", ".3f"),
    "mean_token_accuracy": ("right tokens", ".3f"),
    "entropy": ("entropy", ".3f"),
    "grad_norm": ("gradient", ".2f"),
}


def runs(plan: Plan, states: Sequence[Path]) -> dict[str, Sequence[Numbers]]:
    """Return the steps of each `row-seed` in row order, from the first state with the seed."""
    found: dict[str, Sequence[Numbers]] = {}
    for row, seed, state in itertools.product(plan.rows, plan.seeds, states):
        name = f"{row.value}-{seed}"
        path = steps.path_of(state, name)
        if name not in found and path.exists() and path.stat().st_size:
            found[name] = Steps(path).in_order
    return found


def markdown(plan: Plan, states: Sequence[Path]) -> str:
    """Return a table of reinforced runs and one of fine-tuned ones, as far as there are any."""
    reinforced: dict[str, Sequence[Numbers]] = {}
    fine_tuned: dict[str, Sequence[Numbers]] = {}
    for name, mine in runs(plan, states).items():
        is_reinforced = Row(name.rpartition("-")[0]).is_reinforced
        (reinforced if is_reinforced else fine_tuned)[name] = mine
    tables = (("stage 3", reinforced, REINFORCED), ("stages 1, 2", fine_tuned, FINE_TUNED))
    return "\n\n".join(_table(title, mine, columns) for title, mine, columns in tables if mine)


def _table(
    title: str, found: Mapping[str, Sequence[Numbers]], columns: Mapping[str, tuple[str, str]]
) -> str:
    names = [name for name, _ in columns.values()]
    lines = [f"| {title}: first → last fifth of steps | {' | '.join(names)} | steps |"]
    lines.append("|---" * (len(columns) + 2) + "|")
    for name, mine in found.items():
        cells = [_cell(mine, key, form) for key, (_, form) in columns.items()]
        lines.append(f"| {name} | {' | '.join(cells)} | {len(mine)} |")
    return "\n".join(lines)


def _cell(mine: Sequence[Numbers], key: str, form: str) -> str:
    """Return the means of both ends; a hyphen where no step of an end has the number."""
    size = max(1, math.ceil(len(mine) / 5))
    ends = [[step[key] for step in part if key in step] for part in (mine[:size], mine[-size:])]
    return " → ".join(f"{fmean(end):{form}}" if end else "-" for end in ends)
