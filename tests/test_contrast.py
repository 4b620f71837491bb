"""Equation 1 against a slow loop, the rules of buckets, and how exemplars are drawn."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.contrast import (
    Exemplar,
    Sampling,
    bucket_probabilities,
    buckets,
    choose,
)

SCORES = st.lists(st.floats(0, 200), min_size=1, max_size=30)
WIDTHS = st.floats(0.02, 1)
DRAWS = st.integers(0, 10**6).map(random.Random)


def _exemplars(scores: list[float]) -> list[Exemplar]:
    return [
        Exemplar(candidate_id=f"c{index}", source=f"x = {index}", score=score)
        for index, score in enumerate(scores)
    ]


@given(st.lists(st.floats(0, 20), min_size=1, max_size=8), st.floats(0.2, 5))
def test_buckets_are_drawn_by_equation_1(means: list[float], temperature: float) -> None:
    centre = sum(means) / len(means)
    total = 0.0
    for mean in means:
        total += math.exp((mean - centre) / temperature)
    expected = [math.exp((mean - centre) / temperature) / total for mean in means]
    found = bucket_probabilities(means, temperature=temperature)
    assert found == pytest.approx(expected)


def test_very_different_scores_do_not_overflow() -> None:
    assert bucket_probabilities([1.0, 1e5], temperature=0.01) == [0.0, 1.0]


@given(SCORES, WIDTHS)
def test_every_exemplar_lies_in_exactly_one_bucket(scores: list[float], width: float) -> None:
    found = buckets(_exemplars(scores), width=width)
    members = [exemplar.candidate_id for bucket in found for exemplar in bucket.exemplars]
    assert sorted(members) == sorted(f"c{index}" for index in range(len(scores)))


@given(SCORES, WIDTHS)
def test_buckets_rise_and_do_not_overlap(scores: list[float], width: float) -> None:
    found = buckets(_exemplars(scores), width=width)
    for lower, upper in itertools.pairwise(found):
        assert lower.low < upper.low
        assert lower.exemplars[-1].score <= upper.exemplars[0].score + 1e-6


@given(st.lists(st.floats(0, 1.99), min_size=1, max_size=30), WIDTHS)
def test_below_two_a_bucket_is_as_wide_as_asked(scores: list[float], width: float) -> None:
    for bucket in buckets(_exemplars(scores), width=width):
        assert bucket.low / width == pytest.approx(round(bucket.low / width))
        for exemplar in bucket.exemplars:
            assert bucket.low - 1e-6 <= exemplar.score < bucket.low + width + 1e-6


@given(st.lists(st.floats(2, 500), min_size=1, max_size=30), WIDTHS)
def test_above_two_a_bucket_is_as_wide_in_proportion(scores: list[float], width: float) -> None:
    for bucket in buckets(_exemplars(scores), width=width):
        high = bucket.low * (1 + width / 2)
        for exemplar in bucket.exemplars:
            assert bucket.low * (1 - 1e-6) <= exemplar.score < high * (1 + 1e-6)


def test_a_score_on_an_edge_belongs_to_the_bucket_above() -> None:
    found = buckets(_exemplars([0.3, 0.7, 1.1, 2.0]), width=0.1)
    assert [bucket.low for bucket in found] == pytest.approx([0.3, 0.7, 1.1, 2.0])


def test_equal_sources_count_once() -> None:
    one = _exemplars([1.05])
    (bucket,) = buckets(one * 3, width=0.1)
    assert bucket.exemplars == tuple(one)


def test_a_bucket_s_score_is_the_mean_of_its_members() -> None:
    (bucket,) = buckets(_exemplars([1.0, 1.02, 1.07]), width=0.1)
    assert bucket.mean_score == pytest.approx(1.03)


@given(SCORES, st.integers(1, 4), DRAWS)
def test_chosen_exemplars_come_from_different_buckets_in_rising_order(
    scores: list[float], count: int, rng: random.Random
) -> None:
    all_of_them = _exemplars(scores)
    chosen = choose(
        all_of_them, sampling=Sampling.BUCKET, count=count, width=0.1, temperature=0.5, rng=rng
    )
    found = buckets(all_of_them, width=0.1)
    assert len(chosen) == min(count, len(found))
    assert [e.score for e in chosen] == sorted(e.score for e in chosen)
    homes = [next(b.low for b in found if e in b.exemplars) for e in chosen]
    assert len(set(homes)) == len(homes)


def test_exemplars_are_drawn_as_often_as_equation_1_says() -> None:
    exemplars = _exemplars([1.0, 1.04, 1.5, 2.5])
    rng, temperature, num_draws = random.Random(3), 0.5, 6000
    drawn = Counter(
        choose(
            exemplars, sampling=Sampling.BUCKET, count=1, width=0.1, temperature=temperature,
            rng=rng,
        )[0].candidate_id
        for _ in range(num_draws)
    )  # fmt: skip
    means = [1.02, 1.5, 2.5]
    weights = [math.exp(mean / temperature) for mean in means]
    share = [weight / sum(weights) for weight in weights]
    expected = {"c0": share[0] / 2, "c1": share[0] / 2, "c2": share[1], "c3": share[2]}
    for name, probability in expected.items():
        assert drawn[name] / num_draws == pytest.approx(probability, abs=0.02)


def test_random_sampling_ignores_scores_and_takes_each_source_once() -> None:
    exemplars = _exemplars([1.0, 50.0, 1.01])
    rng, num_draws = random.Random(4), 3000
    drawn: Counter[str] = Counter()
    for _ in range(num_draws):
        chosen = choose(
            exemplars * 2, sampling=Sampling.RANDOM, count=2, width=0.1, temperature=0.5, rng=rng
        )
        names = [exemplar.candidate_id for exemplar in chosen]
        assert len(set(names)) == 2
        drawn.update(names)
    for name in ("c0", "c1", "c2"):
        assert drawn[name] / num_draws == pytest.approx(2 / 3, abs=0.03)


def test_the_same_seed_chooses_the_same_exemplars() -> None:
    exemplars = _exemplars([1.0, 1.2, 1.6, 2.5, 9.0])
    one, other = (
        choose(
            exemplars, sampling=Sampling.BUCKET, count=2, width=0.1, temperature=0.5,
            rng=random.Random(8),
        )
        for _ in range(2)
    )  # fmt: skip
    assert one == other


@pytest.mark.parametrize("sampling", list(Sampling))
def test_no_exemplars_give_none(sampling: Sampling) -> None:
    rng = random.Random(0)
    assert not choose([], sampling=sampling, count=2, width=0.1, temperature=0.5, rng=rng)


def test_plain_sampling_shows_nothing() -> None:
    rng = random.Random(0)
    assert not choose(
        _exemplars([1.0, 2.0]), sampling=Sampling.NONE, count=2, width=0.1, temperature=0.5, rng=rng
    )
