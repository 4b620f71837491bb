"""Trajectories: chains of answers to one problem, each of which was shown the attempts before it.

Source: Kevin-32B (Baronio et al. 2025, arXiv 2507.11948), section 3. Each turn is a training sample
of its own. What it earns is the discounted sum of the rewards from it on, so that an attempt that
fails earns what it led to.

Kevin's rewards count from 0. Then an early turn earns more than a late one where all are equally
good, and less where rewards are negative, as smoothed ones are. Here rewards count from their
group's mean, so equal answers earn equal returns, whatever their turns.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from statistics import fmean


def from_group_mean(rewards: Sequence[float], groups: Sequence[Hashable]) -> list[float]:
    """Return each reward minus the mean of its group.

    Args:
        rewards: what each answer earned by itself.
        groups: the group of each answer.
    """
    means = {
        group: fmean(r for r, other in zip(rewards, groups, strict=True) if other == group)
        for group in dict.fromkeys(groups)
    }
    return [reward - means[group] for reward, group in zip(rewards, groups, strict=True)]


def discounted_returns(
    rewards: Sequence[float], follows: Sequence[int | None], *, discount: float
) -> list[float]:
    """Return what each answer earns: the sum of `discount**(i - t) * reward_i` over turns i >= t.

    Args:
        rewards: what each answer earned by itself.
        follows: place of the answer before it in its trajectory, an earlier place; None for a
            first one.
        discount: the factor of one turn, from 0 (later turns count nothing) to 1.
    """
    found = list(rewards)
    for place in reversed(range(len(found))):  # all that follow it have been added to it by then
        before = follows[place]
        if before is not None:
            assert before < place, "an answer comes after the one that it follows"
            found[before] += discount * found[place]
    return found
