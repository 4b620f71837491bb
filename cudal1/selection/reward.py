"""The way from a verdict to the number that trains: reward, smoothed reward, advantage.

Symbols: G completions of one prompt, T tokens of a completion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import fmean, pstdev, quantiles, stdev
from typing import Any

from cudal1.verdict import Verdict

GROUP_EPSILON = 1e-4
"""Number added to a group's standard deviation, as TRL does."""
LEAST_DEVIATION = 1e-6
"""Standard deviation below which rewards are equal, but for rounding."""


def success_reward(verdict: Verdict | None) -> float:
    """Return 1 for a successful candidate, 0 otherwise; speed is ignored (paper 2.3).

    None stands for a completion without source.
    """
    return 1.0 if verdict is not None and verdict.is_successful else 0.0


def speed_reward(verdict: Verdict | None) -> float:
    """Return the certified speedup of a successful candidate, otherwise 0 (paper 2.4.4).

    Raises:
        ValueError: a successful verdict that was never timed.
    """
    if verdict is None or not verdict.is_successful:
        return 0.0
    if verdict.speedup is None:
        raise ValueError(f"candidate {verdict.candidate_id} was checked but never timed")
    return verdict.speedup


def group_advantages(rewards_G: Sequence[float]) -> list[float]:
    """Return each reward minus its group's mean, over the group's sample standard deviation.

    A group of equal rewards carries no signal and gets zeros. TRL computes the same inside its
    trainer; a test compares it with this readable statement.

    Source: paper equation 4.
    """
    if len(rewards_G) < 2:
        return [0.0] * len(rewards_G)
    mean, spread = fmean(rewards_G), stdev(rewards_G)
    return [(reward - mean) / (spread + GROUP_EPSILON) for reward in rewards_G]


def objective(
    ratios_GT: Sequence[Sequence[float]],
    advantages_G: Sequence[float],
    divergences_GT: Sequence[Sequence[float]],
    *,
    epsilon: float,
    beta: float,
) -> float:
    """Return GRPO's objective of one group: clipped gains less `beta` times the divergence.

    For each token of an answer it takes the ratio of its probability to that when the answer was
    sampled, and the divergence from the initial policy. An answer, of one token or more, counts as
    the mean over its tokens. With a single ratio an answer, its product over all tokens, this is
    the paper's equation to the letter. TRL as it is set up here takes tokens, and of a batch the
    mean over groups. It computes the same inside its trainer, and a test compares the trainer's
    loss with this.

    Source: paper equation 5. Departures: docs/training/departures.md.
    """
    return fmean(
        fmean(
            min(ratio * advantage, max(1 - epsilon, min(1 + epsilon, ratio)) * advantage)
            - beta * divergence
            for ratio, divergence in zip(ratios_T, divergences_T, strict=True)
        )
        for ratios_T, advantage, divergences_T in zip(
            ratios_GT, advantages_G, divergences_GT, strict=True
        )
    )


def smoothed_reward(reward: float, *, mean: float, deviation: float, k: float) -> float:
    """Return a reward as a clipped z-score, `clip((r - mean) / deviation, -k, k)`.

    Source: paper equation 6, section 3.2 (k = 1.5). A deviation below 1e-6 counts as 1e-6.
    """
    return max(-k, min(k, (reward - mean) / max(deviation, LEAST_DEVIATION)))


class Advantage(StrEnum):
    """The advantage of an answer, by its group's rewards."""

    NORMALIZED = "normalized"
    """The reward less the group's mean, over its standard deviation (equation 4)."""
    LEAVE_ONE_OUT = "leave_one_out"
    """The reward less the mean of the others, which is unbiased (RLOO, arXiv 2402.14740; TRLOO of
    Dr.Kernel): a group with small differences counts less than one with large ones."""


class SmoothScope(StrEnum):
    """The rewards that equation 6 takes its mean and deviation of; the paper leaves them open."""

    ROLLING = "rolling"
    """The latest rewards of all problems (so says the authors' blog): a problem with small gains
    earns less than one with large ones, until equation 4 compares within groups."""
    PROBLEM = "problem"
    """The latest rewards of the same problem: a gain counts by what is usual there."""
    GROUP = "group"
    """The rewards of the same problem in the same batch. Equation 4 then all but undoes equation 6;
    only the clip is left."""


class Smoother:
    """Equation 6 with its mean and deviation.

    Args:
        scope: the rewards that mean and deviation are of.
        k: k of equation 6; None: rewards are clipped to the range of the middle 98 % of those that
            mean and deviation are of, so that the range follows their spread.
        window: number of latest rewards that they cover, where the scope is not the group.
        refresh: number of calls after which they are computed anew, where the scope is not the
            group.
        log_scale: smooth log(1 + r), so that one family of hundredfold gains does not flatten all
            others.
    """

    def __init__(
        self, scope: SmoothScope, *, k: float | None, window: int, refresh: int, log_scale: bool
    ) -> None:
        self._scope = scope
        self._k = k
        self._window = window
        self._refresh = refresh
        self._log_scale = log_scale
        self._known: dict[str, _Statistics] = {}
        """Statistics by problem, under that scope; else under an empty name."""

    def smooth(self, rewards: Sequence[float], problem_ids: Sequence[str]) -> list[float]:
        """Return the rewards of one batch, smoothed; the batch enters the statistics first."""
        scaled = [math.log1p(reward) if self._log_scale else reward for reward in rewards]
        keys = ["" if self._scope is SmoothScope.ROLLING else name for name in problem_ids]
        if self._scope is SmoothScope.GROUP:
            self._known.clear()
        for key in dict.fromkeys(keys):
            mine = [value for value, of in zip(scaled, keys, strict=True) if of == key]
            self._known.setdefault(key, _Statistics()).take_in(
                mine, window=self._window, refresh=self._refresh
            )
        return [
            self._known[key].smoothed(v, k=self._k) for v, key in zip(scaled, keys, strict=True)
        ]

    def state(self) -> dict[str, Any]:
        """Return the state that `restore` takes after a restart; JSON-compatible."""
        return {key: asdict(known) for key, known in self._known.items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from `state()`."""
        self._known = {key: _Statistics(**known) for key, known in state.items()}


@dataclass
class _Statistics:
    """The mean and deviation of the latest rewards."""

    seen: list[float] = field(default_factory=list[float])
    num_calls: int = 0
    mean: float = 0.0
    deviation: float = 1.0
    middle: tuple[float, float] | None = None
    """Bounds of the middle 98 %; None: too few are known."""

    def smoothed(self, reward: float, *, k: float | None) -> float:
        """Return equation 6, or its z-score clipped to the middle of the rewards' range."""
        if k is not None:
            return smoothed_reward(reward, mean=self.mean, deviation=self.deviation, k=k)
        low, high = (reward, reward) if self.middle is None else self.middle
        clipped = max(low, min(high, reward))
        return (clipped - self.mean) / max(self.deviation, LEAST_DEVIATION)

    def take_in(self, rewards: Sequence[float], *, window: int, refresh: int) -> None:
        self.seen = [*self.seen, *rewards][-window:]
        if self.num_calls % refresh == 0 and len(self.seen) > 1:
            self.mean, self.deviation = fmean(self.seen), pstdev(self.seen)
            cuts = quantiles(self.seen, n=100, method="inclusive")
            self.middle = cuts[0], cuts[-1]
        self.num_calls += 1
