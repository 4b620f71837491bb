"""The methods and policies that are compared, and the terms on which they are: equal for all.

They are compared on the problems that all were given, and for each problem as many answers as the
method with the fewest had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl

from cudal1.problem import Split
from cudal1.report import facts
from cudal1.report.inputs import ReportInput

TRAINED = {
    "policy": "untrained",
    "sft": "stage 1",
    "selfsup": "stages 1+2",
    "rl": "3 stages",
    "ablation": "3 stages",
}
"""Training that a stage's policy has had."""
ORDER = ("none", "random", "island", "bucket")
"""Kinds of sampling as the paper lists them; `none` is vanilla, and refine."""
REFINE = "refine"
"""The method that shows each answer its own trajectory's attempts."""


@dataclass(frozen=True)
class Contender:
    """A method, or the policy that a stage leaves, which is asked with the plain prompt."""

    label: str
    problems: frozenset[str]
    num_answers: int
    """The most answers to a problem."""
    answers: pl.DataFrame

    def best(self, problems: Sequence[str], num_answers: int) -> list[float | None]:
        """Return the best certified speedup of each problem; None where nothing succeeded."""
        rewards = self.rewards(problems, num_answers)
        return [max(rewards[problem], default=0.0) or None for problem in problems]

    def rewards(self, problems: Sequence[str], num_answers: int) -> dict[str, list[float]]:
        """Return each problem's first rewards in the order of the answers, 0 for a failure."""
        first = self.answers.filter(pl.col("attempt") < num_answers).sort("problem_id", "attempt")
        found: dict[str, list[float]] = {problem: [] for problem in problems}
        for problem, reward in first.select("problem_id", "reward").iter_rows():
            if problem in found:
                found[problem].append(reward or 0.0)
        return found


@dataclass(frozen=True)
class Comparison:
    """The contenders, and what all of them were given."""

    contenders: Sequence[Contender]
    problems: Sequence[str]
    num_answers: int
    """The fewest answers to a problem that any contender had."""
    stopped: Sequence[str]
    """Methods that are left out, since their provider stopped."""
    policies_left_out: bool
    """True if policies are left out, since they were examined on other problems."""


@lru_cache(maxsize=1)
def comparison(given: ReportInput) -> Comparison:
    """Return the methods in the paper's order, then the policies in the stages' order."""
    started, policies = _methods(given), _policies(given)
    budget = max((method.num_answers for method in started), default=0)
    methods = [method for method in started if method.num_answers == budget > 0]
    problems, left_out = _shared(methods, policies)
    compared = [*methods, *([] if left_out else policies)] if methods and problems else []
    return Comparison(
        contenders=compared,
        problems=problems,
        num_answers=min((contender.num_answers for contender in compared), default=0),
        stopped=[method.label for method in started if method not in methods],
        policies_left_out=left_out,
    )


def _methods(given: ReportInput) -> list[Contender]:
    """Return vanilla, then evolve by its kind of sampling, as the paper does, then refine."""
    answers = facts.answers(given)
    rows = given.searched.group_by("stage", "method", "sampling").agg(
        pl.col("problem_id"), pl.col("num_asked").max()
    )
    found = sorted(rows.to_dicts(), key=_place)
    return [
        Contender(
            row["stage"].removeprefix(facts.SEARCH),
            frozenset(row["problem_id"]),
            row["num_asked"],
            answers.filter(pl.col("stage") == row["stage"]),
        )
        for row in found
    ]


def _place(row: Mapping[str, str]) -> tuple[bool, int, str]:
    sampling = row["sampling"]
    kind = ORDER.index(sampling) if sampling in ORDER else len(ORDER)
    return row["method"] == REFINE, kind, row["stage"]


def _policies(given: ReportInput) -> list[Contender]:
    answers = facts.answers(given).filter(
        pl.col("provider") == facts.POLICY, pl.col("split") == Split.HELDOUT.value
    )
    found: list[Contender] = []
    for stage in facts.stages(answers):
        mine = answers.filter(pl.col("stage") == stage)
        counts = dict(mine.group_by("problem_id").len().iter_rows())
        trained = TRAINED.get(stage.split("@")[0])
        label = facts.policy_label(stage)
        found.append(
            Contender(
                f"{label} ({trained})" if trained else label,
                frozenset(counts),
                min(counts.values()),
                mine,
            )
        )
    return found


def _shared(methods: Sequence[Contender], policies: Sequence[Contender]) -> tuple[list[str], bool]:
    """Return the problems of all methods and policies, and whether policies had to be left out."""
    searched = _in_all(methods)
    both = searched & _in_all(policies)
    return (sorted(both), False) if both else (sorted(searched), bool(policies))


def _in_all(contenders: Sequence[Contender]) -> frozenset[str]:
    sets = [contender.problems for contender in contenders]
    return frozenset.intersection(*sets) if sets else frozenset()
