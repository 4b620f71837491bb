"""The pipeline's policies with their answers to held-out problems, and the best of them."""

from __future__ import annotations

from functools import lru_cache
from statistics import fmean

import polars as pl

from cudal1.problem import Split
from cudal1.record import Record
from cudal1.report import facts
from cudal1.report.inputs import ReportInput
from cudal1.verdict import Status

Rewards = dict[str, list[float]]
"""A number of each of a policy's answers, by problem."""


class Policy(Record):
    """A policy that was examined on held-out problems."""

    stage: str
    """The stage that left it."""
    label: str
    rewards: Rewards
    successes: Rewards
    """1 for each successful answer, 0 for another, by problem."""

    @property
    def num_answers(self) -> int:
        """Return the number of answers to all problems."""
        return sum(len(each) for each in self.rewards.values())

    @property
    def success(self) -> float:
        """Return the share of successful answers."""
        return fmean(hit for each in self.successes.values() for hit in each)

    @property
    def reward(self) -> float:
        """Return the mean reward of an answer."""
        return fmean(reward for each in self.rewards.values() for reward in each)


@lru_cache(maxsize=1)
def examined(given: ReportInput) -> tuple[Policy, ...]:
    """Return the pipeline's policies in the order of the stages; rows of the ablation are none."""
    answers = facts.answers(given).filter(
        pl.col("provider") == facts.POLICY,
        pl.col("split") == Split.HELDOUT.value,
        ~pl.col("stage").str.starts_with("ablation@"),
    )
    found: list[Policy] = []
    for stage in facts.stages(answers):
        mine = answers.filter(pl.col("stage") == stage)
        rewards: Rewards = {}
        successes: Rewards = {}
        columns = mine.select("problem_id", "reward", "outcome")
        for problem, reward, outcome in columns.iter_rows():
            rewards.setdefault(problem, []).append(reward or 0.0)
            successes.setdefault(problem, []).append(float(outcome == Status.CORRECT.value))
        label = facts.policy_label(stage)
        found.append(Policy(stage=stage, label=label, rewards=rewards, successes=successes))
    return tuple(found)


def best_policy(given: ReportInput) -> Policy | None:
    """Return the policy with the highest mean reward; of equal ones the later stage's."""
    return max(reversed(examined(given)), key=lambda policy: policy.reward, default=None)


def before(given: ReportInput, policy: Policy) -> Policy | None:
    """Return the policy that a stage's training started from, by params; else the one before it."""
    among = examined(given)
    group, _, item = policy.stage.partition("@")
    key = f"selfsup.rounds.{item}.init" if group == "selfsup" else f"{group}.init"
    name = given.provenance.params.get(key)
    folders = {"base": "policy", "sft": "sft", "rl": "rl"}
    wanted = None if name is None else folders.get(name, f"selfsup@{name}")
    for other in among:
        if other.stage == wanted:
            return other
    place = among.index(policy)
    return among[place - 1] if place else None
