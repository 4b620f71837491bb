"""Tests of the rewards of trajectories: each turn earns the discounted sum from it on."""

from __future__ import annotations

import random

import pytest

from cudal1.selection.trajectories import discounted_returns, from_group_mean


def test_an_answer_without_a_successor_earns_its_own_reward() -> None:
    assert discounted_returns([1.0, -2.0], [None, None], discount=0.4) == [1.0, -2.0]


def test_an_attempt_earns_a_share_of_what_it_led_to() -> None:
    found = discounted_returns([0.0, 1.0, 2.0], [None, 0, 1], discount=0.4)
    assert found == pytest.approx([0.4 + 0.16 * 2, 1.8, 2.0])


def test_a_discount_of_0_leaves_later_turns_out() -> None:
    assert discounted_returns([1.0, 5.0], [None, 0], discount=0.0) == [1.0, 5.0]


def test_interleaved_trajectories_earn_the_sums_of_the_formula() -> None:
    rng = random.Random(3)
    num_turns, num_chains, discount = 4, 5, 0.7
    rewards = [rng.uniform(-1.5, 1.5) for _ in range(num_turns * num_chains)]
    follows = [None if i < num_chains else i - num_chains for i in range(len(rewards))]
    slowly = [
        sum(discount ** ((j - i) // num_chains) * rewards[j] for j in range(i, len(rewards))[::5])
        for i in range(len(rewards))
    ]
    assert discounted_returns(rewards, follows, discount=discount) == pytest.approx(slowly)


@pytest.mark.parametrize("reward", [-0.9, 0.0, 1.3])
def test_equal_answers_earn_equal_returns_whatever_their_turns(reward: float) -> None:
    """Otherwise a group that learns nothing would train its turns."""
    counted = from_group_mean([reward] * 4, ["p"] * 4)
    assert discounted_returns(counted, [None, None, 0, 1], discount=0.4) == [0.0] * 4


def test_rewards_count_from_the_mean_of_their_own_group() -> None:
    assert from_group_mean([1.0, 10.0, 3.0, 30.0], ["p", "q", "p", "q"]) == [-1.0, -10.0, 1.0, 10.0]
