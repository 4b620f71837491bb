"""Pairs of bursts suffice for some measurements, and few quads may bear out a claim."""

from __future__ import annotations

import math
import random

import pytest

from cudal1.harness.timing import rule
from cudal1.measurement import Role
from cudal1.protocol import EvalProtocol, Rule

NUM_DRAWS = 2000


def test_the_first_role_of_a_pair_is_a_fair_coin(quick: EvalProtocol) -> None:
    rng = random.Random(5)
    orders = [rule.draw_order(rng, quick, in_pairs=True) for _ in range(NUM_DRAWS)]
    assert {frozenset(order) for order in orders} == {frozenset((Role.REFERENCE, Role.CANDIDATE))}
    first = sum(order[0] is Role.CANDIDATE for order in orders)
    assert abs(first - NUM_DRAWS / 2) < 4 * math.sqrt(NUM_DRAWS / 4)


def test_a_gain_is_clear_when_each_quad_says_so() -> None:
    large, small = math.log(rule.CLEAR) + 0.01, math.log(rule.CLEAR) - 0.01
    assert not rule.is_clear([])
    assert rule.is_clear([large, large])
    assert not rule.is_clear([large, small, large])


@pytest.mark.parametrize("are_bursts_alike", [True, False])
@pytest.mark.parametrize(
    ("speedups", "suffice"),
    [
        ([], False),
        ([0.5], True),  # a clear loss
        ([0.5, 1.1], False),
        ([0.95] * 4, False),
        ([0.95] * 5, True),  # a gain is not expected
        ([1.01] * 5, True),
    ],
)
def test_pairs_suffice_once_only_a_loss_may_be_shown(
    quick: EvalProtocol, speedups: list[float], suffice: bool, are_bursts_alike: bool
) -> None:
    ratios = [math.log(each) for each in speedups]
    found = rule.takes_pairs(ratios, quick, are_bursts_alike=are_bursts_alike)
    assert found is suffice


def test_the_paper_s_rule_takes_pairs_alone_however_many(quick: EvalProtocol) -> None:
    paper = quick.model_copy(update={"rule": Rule.PAPER, "window_s": 1.0})
    balanced = [0.5, -0.5] * 2 * quick.max_quads
    for count in (0, 1, len(balanced)):
        assert rule.takes_pairs(balanced[:count], paper, are_bursts_alike=False)


def test_pairs_suffice_for_a_clear_gain_if_bursts_are_alike(quick: EvalProtocol) -> None:
    clear = [math.log(rule.CLEAR) + 0.01] * 2
    assert rule.takes_pairs(clear, quick, are_bursts_alike=True)
    assert not rule.takes_pairs(clear, quick, are_bursts_alike=False)


@pytest.mark.parametrize(
    ("speedups", "is_open"),
    [
        ([1.2] * 9, False),  # certified
        ([1.2, 0.9] * 4 + [1.2], True),
        ([0.9] * 9, False),  # given up
        ([1.2, 0.9] * 4, False),  # too early
    ],
)
def test_longer_bursts_may_tell_if_a_gain_is_open_after_the_first_quads(
    quick: EvalProtocol, speedups: list[float], is_open: bool
) -> None:
    assert rule.is_undecided([math.log(each) for each in speedups], quick) is is_open


@pytest.mark.parametrize(
    ("said", "expected", "borne_out"),
    [(4.0, 4.0, True), (4.0, 4.2, True), (4.0, 5.5, False), (4.0, None, False)],
)
def test_a_large_claim_is_borne_out_by_few_quads_that_agree(
    quick: EvalProtocol, said: float, expected: float | None, borne_out: bool
) -> None:
    ratios = [math.log(said)] * rule.CONFIRMING
    assert rule.bears_out(ratios, expected, quick) is borne_out
    assert not rule.bears_out(ratios[1:], expected, quick)


@pytest.mark.parametrize("within", [0.05, 0.1, 0.5])
def test_a_wide_gate_bears_nothing_out_sooner(quick: EvalProtocol, within: float) -> None:
    """Five estimates a fifth below the claim do not confirm it, however wide the gate is."""
    wide = quick.model_copy(update={"confirm_within": within})
    assert not rule.bears_out([math.log(3.2)] * rule.CONFIRMING, 4.0, wide)


def test_quads_that_scatter_bear_nothing_out(quick: EvalProtocol) -> None:
    ratios = [math.log(each) for each in (2.0, 8.0, 4.0, 1.5, 9.0)]
    assert not rule.bears_out(ratios, 4.0, quick)


def test_the_paper_s_rule_measures_its_whole_window(quick: EvalProtocol) -> None:
    paper = quick.model_copy(update={"rule": Rule.PAPER, "window_s": 1.0})
    assert not rule.bears_out([1.0] * rule.CONFIRMING, math.e, paper)


@pytest.mark.parametrize(
    ("ratio", "spread", "ends_once_long"),
    [
        (math.log(4.0), 0.2, True),  # certified, and still rising
        (math.log(4.0), 1.0, False),  # the estimate is far above what is certified
        (math.log(0.9), 0.2, True),  # no gain, and whether it is a loss is open
        (0.0, 0.2, False),  # a gain may still come
    ],
)
def test_a_certain_result_suffices_after_a_long_time(
    quick: EvalProtocol, ratio: float, spread: float, ends_once_long: bool
) -> None:
    rng = random.Random(1)
    noisy = [ratio + rng.uniform(-spread, spread) for _ in range(quick.min_quads + 1)]
    protocol = quick.model_copy(update={"max_quads": 200})
    soon, late = (rule.is_done(noisy, s, protocol) for s in (0.0, 2 * rule.LONG_S))
    assert (soon, late) == (False, ends_once_long)


def test_a_clear_loss_is_certified_however_long_it_takes(quick: EvalProtocol) -> None:
    slow = [math.log(0.01)] * quick.max_quads
    ends = next(n for n in range(1, len(slow)) if rule.is_done(slow[:n], 99.0, quick))
    assert rule.read(slow[:ends], quick).certified == 0.01
