"""The paper's protocol does exactly what the paper says."""

from __future__ import annotations

import math
import random
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.harness.timing import fixed_window, rule
from cudal1.measurement import Role
from cudal1.protocol import Contract, EvalProtocol, Mode, PrecisionClass, Rule

PROTOCOL = EvalProtocol(
    correctness_stages=(3,),
    contract=Contract.KERNELBENCH,
    mode=Mode.CONSTRUCTED,
    precision=PrecisionClass.STRICT,
    timing=True,
    rule=Rule.PAPER,
    window_s=1200,
    burst_us=3000,
    max_burst_calls=24,
    ring_bytes=1 << 20,
    min_quads=9,
    max_quads=24,
    alpha=0.01,
    certify_within=0.1,
    max_claim=2.0,
    dead_zone=1.02,
    num_buckets=7,
    max_bucket_variance=0.005,
    confirm_above=3.0,
    confirm_below=1.0,
    give_up_alpha=0.1,
    confirm_above_record=2.0,
    confirm_within=0.1,
    slow_factor=1000,
    start_timeout_s=20,
    build_timeout_s=60,
    call_timeout_s=2,
    memory_bytes=1 << 30,
    seed=7,
)
"""The protocol with the paper's numbers."""

SERIES = st.lists(st.floats(-3, 3), min_size=7, max_size=60)
STEADY = st.tuples(st.floats(-1, 2), st.lists(st.floats(-0.02, 0.02), min_size=7, max_size=60)).map(
    lambda pair: [pair[0] + noise for noise in pair[1]]
)


def _slow_reward(ratios: list[float]) -> float:
    """Return the reward as the paper defines it (2.4.4), step by step."""
    runs = []
    for ratio in ratios:
        runs.append(math.exp(ratio))  # equation 2: t_ref / t_d
    buckets: list[list[float]] = [[] for _ in range(7)]
    for bucket in range(7):
        first, last = round(bucket * len(runs) / 7), round((bucket + 1) * len(runs) / 7)
        for index in range(first, last):
            buckets[bucket].append(runs[index])
    averages = [sum(bucket) / len(bucket) for bucket in buckets]
    middle = sum(averages) / 7
    spread = 0.0
    for average in averages:
        spread += (average - middle) ** 2
    if spread / 6 > 0.005:
        return 1.0  # rejected
    score = sorted(averages)[3]  # equation 3
    if score > 1:
        return math.floor(score * 100 + 1e-9) / 100
    return max(0.01, math.ceil(score * 100 - 1e-9) / 100)


@given(st.one_of(SERIES, STEADY))
def test_the_reward_equals_that_of_a_slow_loop_from_the_paper(ratios: list[float]) -> None:
    assert fixed_window.reading(ratios, PROTOCOL) == _slow_reward(ratios)


@pytest.mark.parametrize(("score", "earned"), [(1.118, 1.11), (0.992, 1.00), (4.0, 4.0)])
def test_the_reward_is_rounded_as_in_the_paper_s_examples(score: float, earned: float) -> None:
    assert fixed_window.reading([math.log(score)] * 14, PROTOCOL) == earned


def test_the_variance_gate_is_absolute_as_in_the_paper() -> None:
    def spread_by(share: float, centre: float) -> list[float]:
        return [math.log(centre * (1 + share * (-1) ** bucket)) for bucket in range(7)]

    assert fixed_window.reading(spread_by(0.02, 1.5), PROTOCOL) > 1
    assert fixed_window.reading(spread_by(0.02, 10.0), PROTOCOL) == 1


@pytest.mark.parametrize(
    ("num_pairs", "elapsed_s", "done"),
    [(10**6, 1199.9, False), (7, 1200.0, True), (6, 5000.0, False), (0, 1300.0, False)],
)
def test_the_window_alone_ends_a_measurement_once_every_bucket_has_a_pair(
    num_pairs: int, elapsed_s: float, done: bool
) -> None:
    assert fixed_window.is_done(num_pairs, elapsed_s, PROTOCOL) is done
    assert rule.is_done([0.0] * num_pairs, elapsed_s, PROTOCOL) is done


@given(st.one_of(SERIES, STEADY))
def test_the_paper_s_rule_certifies_no_bounds(ratios: list[float]) -> None:
    said = rule.read(ratios, PROTOCOL)
    assert (said.alpha, said.lower, said.upper) == (None, None, None)
    assert said.certified == fixed_window.reading(ratios, PROTOCOL)
    assert said.is_stable or said.certified == 1


def test_pairs_come_in_either_order_equally_often() -> None:
    rng = random.Random(3)
    orders = [rule.draw_order(rng, PROTOCOL) for _ in range(2000)]
    assert set(orders) == {(Role.REFERENCE, Role.CANDIDATE), (Role.CANDIDATE, Role.REFERENCE)}
    assert abs(mean(order[0] is Role.REFERENCE for order in orders) - 0.5) < 0.05


def test_quads_are_abba_or_baab_equally_often() -> None:
    rng, protocol = random.Random(3), PROTOCOL.model_copy(update={"rule": Rule.CERTIFIED})
    orders = [rule.draw_order(rng, protocol) for _ in range(2000)]
    one, other = Role.REFERENCE, Role.CANDIDATE
    assert set(orders) == {(one, other, other, one), (other, one, one, other)}
    assert abs(mean(order[0] is one for order in orders) - 0.5) < 0.05
