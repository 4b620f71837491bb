"""Tests of equations 4, 5 and 6 against slow loops, and of a verdict's reward."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.baseline import Baseline
from cudal1.measurement import Measurement
from cudal1.selection.reward import (
    GROUP_EPSILON,
    Smoother,
    SmoothScope,
    group_advantages,
    objective,
    smoothed_reward,
    speed_reward,
    success_reward,
)
from cudal1.verdict import Status, Verdict

REWARDS = st.lists(st.floats(0, 100), min_size=2, max_size=12)
BATCHES = st.lists(
    st.lists(st.tuples(st.sampled_from("pq"), st.floats(0, 100)), min_size=1, max_size=6),
    min_size=1,
    max_size=8,
)
"""Rewards with the names of their problems."""


def _verdict(status: Status, *, certified: float | None = None) -> Verdict:
    measurement = None
    if certified is not None:
        measurement = Measurement(
            baseline=Baseline.EAGER,
            speedup=certified + 0.2,
            certified=certified,
            alpha=0.01,
            num_quads=9,
            bucket_medians=(1.0,),
            bucket_variance=0,
            is_stable=True,
            reference_us=2,
            candidate_us=1,
        )
    return Verdict(
        problem_id="p",
        candidate_id="c",
        protocol_id="q",
        device_kind="cpu",
        device_id="d",
        status=status,
        reason=None if status is Status.CORRECT else "why",
        measurement=measurement,
        judged_at="2026-01-01T00:00:00+00:00",
        judge_s=1,
    )


def test_success_ignores_speed() -> None:
    slow, fast = (_verdict(Status.CORRECT, certified=c) for c in (0.5, 5.0))
    assert success_reward(slow) == success_reward(fast) == 1


@pytest.mark.parametrize("reward", [success_reward, speed_reward])
@pytest.mark.parametrize("status", sorted(set(Status) - {Status.CORRECT, Status.HACKED}))
def test_a_failure_earns_nothing(reward: Callable[[Verdict | None], float], status: Status) -> None:
    assert reward(_verdict(status)) == 0


@pytest.mark.parametrize("reward", [success_reward, speed_reward])
def test_a_completion_without_source_earns_nothing(
    reward: Callable[[Verdict | None], float],
) -> None:
    assert reward(None) == 0


def test_speed_earns_the_certified_gain_and_not_the_estimate() -> None:
    assert speed_reward(_verdict(Status.CORRECT, certified=1.3)) == 1.3


def test_an_untimed_success_has_no_speed() -> None:
    with pytest.raises(ValueError, match="never timed"):
        speed_reward(_verdict(Status.CORRECT))


@given(REWARDS)
def test_advantages_are_equation_4(rewards: list[float]) -> None:
    mean = 0.0
    for reward in rewards:
        mean += reward / len(rewards)
    square = 0.0
    for reward in rewards:
        square += (reward - mean) ** 2
    spread = math.sqrt(square / (len(rewards) - 1))
    expected = [(reward - mean) / (spread + GROUP_EPSILON) for reward in rewards]
    assert group_advantages(rewards) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("rewards", [[], [3.0], [2.0, 2.0, 2.0]])
def test_a_group_without_differences_carries_no_signal(rewards: list[float]) -> None:
    assert group_advantages(rewards) == [0.0] * len(rewards)


def test_without_k_the_range_of_smoothed_rewards_follows_their_spread() -> None:
    def smoother(k: float | None) -> Smoother:
        return Smoother(SmoothScope.ROLLING, k=k, window=512, refresh=1, log_scale=False)

    rewards = [float(value) for value in range(200)]
    clipped, spread = (smoother(k).smooth(rewards, ["p"] * 200) for k in (1.5, None))
    assert len(set(clipped)) < 190
    assert len(set(spread)) > 190
    assert spread == sorted(spread)
    far = smoother(None).smooth([*rewards, 1e9], ["p"] * 201)
    assert far[-1] == pytest.approx(far[-4], abs=0.1)  # one outlier is no range
    assert smoother(None).smooth([3.0], ["p"]) == [3.0]  # nothing is known yet


ANSWERS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.floats(0, 4), st.floats(0, 2)), min_size=1, max_size=5),
        st.floats(-3, 3),
    ),
    min_size=1,
    max_size=6,
)
"""Answers, each with the ratio and divergence of its tokens, and its advantage."""


@given(ANSWERS, st.floats(0.01, 0.9), st.floats(0, 1))
def test_the_objective_is_equation_5(
    answers: list[tuple[list[tuple[float, float]], float]], epsilon: float, beta: float
) -> None:
    group = 0.0
    for tokens, advantage in answers:
        answer = 0.0
        for ratio, divergence in tokens:
            clipped = ratio
            if ratio > 1 + epsilon:
                clipped = 1 + epsilon
            if ratio < 1 - epsilon:
                clipped = 1 - epsilon
            gain = ratio * advantage
            if clipped * advantage < gain:
                gain = clipped * advantage
            answer += gain - beta * divergence
        group += answer / len(tokens)
    found = objective(
        [[ratio for ratio, _ in tokens] for tokens, _ in answers],
        [advantage for _, advantage in answers],
        [[divergence for _, divergence in tokens] for tokens, _ in answers],
        epsilon=epsilon,
        beta=beta,
    )
    assert found == pytest.approx(group / len(answers), abs=1e-9)


@given(BATCHES, st.sampled_from(SmoothScope), st.integers(2, 10), st.integers(1, 3), st.booleans())
def test_smoothing_is_equation_6_over_the_rewards_of_its_scope(
    batches: list[list[tuple[str, float]]],
    scope: SmoothScope,
    window: int,
    refresh: int,
    log_scale: bool,
) -> None:
    k = 1.5
    smoother = Smoother(scope, k=k, window=window, refresh=refresh, log_scale=log_scale)
    everything: dict[str, list[float]] = {}
    calls: dict[str, int] = {}
    said: dict[str, tuple[float, float]] = {}
    for batch in batches:
        scaled = [(name, math.log(1 + r) if log_scale else r) for name, r in batch]
        if scope is SmoothScope.GROUP:
            everything, calls, said = {}, {}, {}
        for key in {name if scope is not SmoothScope.ROLLING else "all" for name, _ in batch}:
            mine = [r for name, r in scaled if key in ("all", name)]
            everything[key] = everything.get(key, []) + mine
            latest = everything[key][-window:]
            if calls.get(key, 0) % refresh == 0 and len(latest) > 1:
                mean = sum(latest) / len(latest)
                square = sum((r - mean) ** 2 for r in latest) / len(latest)
                said[key] = mean, max(math.sqrt(square), 1e-6)
            calls[key] = calls.get(key, 0) + 1
        expected: list[float] = []
        for name, r in scaled:
            mean, spread = said.get("all" if scope is SmoothScope.ROLLING else name, (0.0, 1.0))
            expected.append(min(k, max(-k, (r - mean) / spread)))
        found = smoother.smooth([r for _, r in batch], [name for name, _ in batch])
        # a spread of rounding errors alone is divided by 1e-6
        assert found == pytest.approx(expected, abs=1e-5)


@given(BATCHES, BATCHES, st.sampled_from(SmoothScope))
def test_a_restored_smoother_continues_without_a_difference(
    before: list[list[tuple[str, float]]], after: list[list[tuple[str, float]]], scope: SmoothScope
) -> None:
    def made() -> Smoother:
        return Smoother(scope, k=1.5, window=8, refresh=2, log_scale=True)

    def smooth(smoother: Smoother, batch: list[tuple[str, float]]) -> list[float]:
        return smoother.smooth([r for _, r in batch], [name for name, _ in batch])

    unbroken, broken, restored = made(), made(), made()
    for batch in before:
        smooth(unbroken, batch)
        smooth(broken, batch)
    restored.restore(json.loads(json.dumps(broken.state())))
    for batch in after:
        assert smooth(restored, batch) == smooth(unbroken, batch)


@given(st.lists(st.lists(st.floats(0, 100), min_size=1, max_size=6), min_size=1, max_size=8))
def test_smoothing_keeps_the_order_of_a_batch(batches: list[list[float]]) -> None:
    smoother = Smoother(SmoothScope.ROLLING, k=1.5, window=100, refresh=1, log_scale=True)
    for batch in batches:
        smoothed = smoother.smooth(batch, ["p"] * len(batch))
        assert [s for _, s in sorted(zip(batch, smoothed, strict=True))] == sorted(smoothed)


def test_the_scope_of_a_problem_adapts_to_its_usual_rewards() -> None:
    """The best answers to a problem of small gains earn as much as to one of large gains."""
    smoother = Smoother(SmoothScope.PROBLEM, k=1.5, window=100, refresh=1, log_scale=False)
    rewards, problems = [1.0, 1.0, 1.2, 10.0, 10.0, 30.0], ["small"] * 3 + ["large"] * 3
    smoothed = smoother.smooth(rewards, problems)
    assert smoothed[2] == pytest.approx(smoothed[5])
    rolling = Smoother(SmoothScope.ROLLING, k=1.5, window=100, refresh=1, log_scale=False)
    assert rolling.smooth(rewards, problems)[2] < 0


def test_a_reward_far_from_the_mean_is_clipped() -> None:
    assert smoothed_reward(9.0, mean=1.0, deviation=2.0, k=1.5) == 1.5
    assert smoothed_reward(0.0, mean=1.0, deviation=2.0, k=1.5) == -0.5
    assert smoothed_reward(-9.0, mean=1.0, deviation=2.0, k=1.5) == -1.5
