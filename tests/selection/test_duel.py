"""Tests that a duel rarely certifies a policy that is no better, and certifies a better one."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.selection.duel import Outcome, evidence, lower_bound, nights_alpha, verdict_of

LIMIT = 3.0
ALPHA = 0.1
NUM_DUELS = 300
PAIRS = st.lists(st.floats(-LIMIT, LIMIT), min_size=1, max_size=30)


def mostly_nothing(rng: random.Random) -> float:
    """Return equal results for both sides, nearly always."""
    return rng.choice([0.0] * 8 + [0.4, -0.4])


def often_a_little_seldom_a_lot(rng: random.Random) -> float:
    """Win four pairs of five without a better mean: a count of wins would promote this."""
    return 0.25 if rng.random() < 0.8 else -1.0


def all_or_nothing(rng: random.Random) -> float:
    return rng.choice((-LIMIT, LIMIT))


def seldom_a_lot(rng: random.Random) -> float:
    """Lose a little nearly always, and win everything now and then."""
    return LIMIT if rng.random() < 0.05 else -LIMIT * 0.05 / 0.95


def fight(draw, rng: random.Random, *, num_pairs: int, alpha: float = ALPHA) -> Outcome:
    """Run a duel that is evaluated after each pair."""
    pairs: list[float] = []
    while True:
        pairs.append(draw(rng))
        found = verdict_of(pairs, alpha=alpha, limit=LIMIT, is_last=len(pairs) == num_pairs)
        if found is not None:
            assert found.num_pairs == len(pairs)
            return found.outcome


@pytest.mark.slow
@pytest.mark.parametrize(
    "draw", [mostly_nothing, often_a_little_seldom_a_lot, all_or_nothing, seldom_a_lot]
)
def test_a_challenger_that_is_no_better_is_certified_at_most_at_the_stated_rate(draw) -> None:
    rng = random.Random(1)
    outcomes = [fight(draw, rng, num_pairs=60) for _ in range(NUM_DUELS)]
    spread = math.sqrt(ALPHA * (1 - ALPHA) / NUM_DUELS)
    assert outcomes.count(Outcome.BETTER) / NUM_DUELS <= ALPHA + 3 * spread
    assert outcomes.count(Outcome.WORSE) / NUM_DUELS <= ALPHA + 3 * spread


def test_a_count_of_wins_would_have_promoted_what_the_evidence_does_not() -> None:
    """The case above is no straw man: a sign test certifies it in nearly every duel."""
    rng = random.Random(2)
    wins = [often_a_little_seldom_a_lot(rng) > 0 for _ in range(60)]
    chance = sum(math.comb(60, k) for k in range(sum(wins), 61)) / 2**60
    assert chance < 1e-3


def test_a_clearly_better_challenger_is_certified() -> None:
    """The gain of 0.45 with spread 0.45 is that of SFT in benchmarks/results/learning.json."""
    rng = random.Random(3)
    outcomes = [
        fight(lambda rng: max(-LIMIT, min(LIMIT, rng.gauss(0.45, 0.45))), rng, num_pairs=100)
        for _ in range(50)
    ]
    assert outcomes.count(Outcome.BETTER) >= 49


def test_a_clearly_worse_challenger_is_rejected_early() -> None:
    def draw(rng: random.Random) -> float:
        return max(-LIMIT, min(LIMIT, rng.gauss(-0.6, 0.4)))

    assert fight(draw, random.Random(4), num_pairs=10_000) is Outcome.WORSE


@given(PAIRS, st.randoms(use_true_random=False))
def test_the_order_of_pairs_does_not_matter(pairs, rng) -> None:
    shuffled = rng.sample(pairs, len(pairs))
    assert evidence(shuffled, above=0.0, limit=LIMIT) == pytest.approx(
        evidence(pairs, above=0.0, limit=LIMIT)
    )


@given(PAIRS)
def test_a_bound_is_the_largest_gain_that_the_evidence_supports(pairs) -> None:
    bound = lower_bound(pairs, alpha=ALPHA, limit=LIMIT)
    if bound > -LIMIT:
        assert evidence(pairs, above=bound, limit=LIMIT) >= math.log(1 / ALPHA)
    if bound < 0.99 * LIMIT:
        assert evidence(pairs, above=bound + 0.002 * LIMIT, limit=LIMIT) < math.log(1 / ALPHA)


@given(PAIRS)
def test_a_better_challenger_has_a_lower_bound_of_at_least_zero(pairs) -> None:
    found = verdict_of(pairs, alpha=ALPHA, limit=LIMIT, is_last=True)
    assert found is not None
    assert found.lower <= found.gain + 1e-3 * LIMIT
    assert found.gain <= found.upper + 1e-3 * LIMIT
    assert (found.outcome is Outcome.BETTER) == (found.lower >= 0) or abs(found.lower) < 1e-3
    assert (found.outcome is Outcome.WORSE) == (found.upper <= 0) or abs(found.upper) < 1e-3


def test_the_evidence_falls_with_a_larger_claim() -> None:
    pairs = [0.5, -0.2, 0.7, 0.0]
    worths = [evidence(pairs, above=g / 10, limit=LIMIT) for g in range(-29, 30)]
    assert worths == sorted(worths, reverse=True)


def test_a_pair_beyond_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="within"):
        evidence([LIMIT + 1], above=0.0, limit=LIMIT)


def test_the_shares_of_a_reign_never_exceed_its_error() -> None:
    spent = [nights_alpha(0.05, challenge=night) for night in range(1, 5000)]
    assert spent[:2] == pytest.approx([0.025, 0.05 / 6])
    assert spent == sorted(spent, reverse=True)
    assert 0.0499 < sum(spent) < 0.05


@pytest.mark.slow
def test_a_reign_of_many_nights_seldom_replaces_a_champion_without_reason() -> None:
    """Thirty nights, each with a challenger that is no better, evaluated after each pair."""
    rng, alpha, num_reigns = random.Random(5), 0.2, 60
    lost = sum(
        any(
            fight(mostly_nothing, rng, num_pairs=25, alpha=nights_alpha(alpha, challenge=night))
            is Outcome.BETTER
            for night in range(1, 31)
        )
        for _ in range(num_reigns)
    )
    assert lost / num_reigns <= alpha + 3 * math.sqrt(alpha * (1 - alpha) / num_reigns)
