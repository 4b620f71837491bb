"""From verdict to the number that trains: reward, smoothed reward, advantage.

Symbols: G completions of one prompt.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from statistics import fmean, pstdev, stdev

from cudal1.verdict import Verdict

GROUP_EPSILON = 1e-4
"""Added to a group's standard deviation, as TRL does."""


def success_reward(verdict: Verdict | None) -> float:
    """1 for a successful candidate, 0 otherwise; speed is ignored (paper 2.3).

    None stands for a completion without source.
    """
    return 1.0 if verdict is not None and verdict.is_successful else 0.0


def speed_reward(verdict: Verdict | None) -> float:
    """The certified speedup of a successful candidate, 0 for everything else (paper 2.4.4).

    Raises:
        ValueError: a successful verdict that was never timed.
    """
    if verdict is None or not verdict.is_successful:
        return 0.0
    if verdict.speedup is None:
        raise ValueError(f"candidate {verdict.candidate_id} was checked but never timed")
    return verdict.speedup


def group_advantages(rewards_G: Sequence[float]) -> list[float]:
    """Each reward minus its group's mean, over the group's sample standard deviation.

    A group whose rewards are all equal carries no signal and gets zeros. TRL computes the same
    inside its trainer; this is the readable statement that a test compares it with.
    Source: paper equation 4.
    """
    if len(rewards_G) < 2:
        return [0.0] * len(rewards_G)
    mean, spread = fmean(rewards_G), stdev(rewards_G)
    return [(reward - mean) / (spread + GROUP_EPSILON) for reward in rewards_G]


class RollingSmoother:
    """Equation 6: rewards as clipped z-scores, `clip((r - mean) / std, -k, k)`.

    Mean and standard deviation are those of the last `window` rewards, refreshed every `refresh`
    calls (the scope that the authors' blog gives; with group statistics equation 4 would undo
    equation 6). With `log_scale` the logarithm of 1 + r is smoothed instead, so that one family of
    hundredfold gains does not flatten all others.
    """

    def __init__(self, *, k: float, window: int, refresh: int, log_scale: bool) -> None:
        self._k = k
        self._refresh = refresh
        self._log_scale = log_scale
        self._seen: deque[float] = deque(maxlen=window)
        self._num_calls = 0
        self._mean = 0.0
        self._spread = 1.0

    def smooth(self, rewards: Sequence[float]) -> list[float]:
        """The rewards of one batch, smoothed; the batch enters the statistics first."""
        scaled = [math.log1p(reward) if self._log_scale else reward for reward in rewards]
        self._seen.extend(scaled)
        if self._num_calls % self._refresh == 0 and len(self._seen) > 1:
            self._mean = fmean(self._seen)
            self._spread = max(pstdev(self._seen), 1e-6)
        self._num_calls += 1
        return [
            max(-self._k, min(self._k, (value - self._mean) / self._spread)) for value in scaled
        ]

    def state(self) -> dict[str, object]:
        """What `restore` needs after a restart; JSON-compatible."""
        return {
            "seen": list(self._seen), "num_calls": self._num_calls,
            "mean": self._mean, "spread": self._spread,
        }  # fmt: skip

    def restore(self, state: dict[str, object]) -> None:
        """Continue from `state()`."""
        seen, num_calls = state["seen"], state["num_calls"]
        mean, spread = state["mean"], state["spread"]
        assert isinstance(seen, list)
        assert isinstance(num_calls, int)
        assert isinstance(mean, float)
        assert isinstance(spread, float)
        self._seen.clear()
        self._seen.extend(float(value) for value in seen)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
        self._num_calls, self._mean, self._spread = num_calls, mean, spread
