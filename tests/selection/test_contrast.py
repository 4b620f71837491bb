"""Tests of equation 1 against a slow loop, the rules of buckets, and the choice of exemplars."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.selection.contrast import (
    ContrastParams,
    Sampling,
    TauUnit,
    bucket_probabilities,
    buckets,
    choose,
)
from cudal1.selection.exemplar import Exemplar
from cudal1.selection.islands import islands

KNOBS = ContrastParams(
    num_exemplars=2,
    num_failures=0,
    bucket_width=0.1,
    bucket_capacity=100,
    tau=0.5,
    tau_unit=TauUnit.SPEEDUP,
    num_islands=3,
    island_reset_every=5,
)
SCORES = st.lists(st.floats(0, 200), min_size=1, max_size=30)
WIDTHS = st.floats(0.02, 1)
DRAWS = st.integers(0, 10**6).map(random.Random)


def _exemplars(scores: list[float]) -> list[Exemplar]:
    return [
        Exemplar(candidate_id=f"c{index}", source=f"x = {index}", score=score)
        for index, score in enumerate(scores)
    ]


def _chosen(
    history: list[Exemplar], sampling: Sampling, rng: random.Random, **knobs: float
) -> tuple[Exemplar, ...]:
    changed = KNOBS.model_copy(update=knobs)
    return choose(history, changed, sampling=sampling, at_round=0, rng=rng).exemplars


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
    found = buckets(_exemplars(scores), width=width, capacity=100)
    members = [exemplar.candidate_id for bucket in found for exemplar in bucket.exemplars]
    assert sorted(members) == sorted(f"c{index}" for index in range(len(scores)))


@given(SCORES, WIDTHS)
def test_buckets_rise_and_do_not_overlap(scores: list[float], width: float) -> None:
    found = buckets(_exemplars(scores), width=width, capacity=100)
    for lower, upper in itertools.pairwise(found):
        assert lower.low < upper.low
        assert lower.exemplars[-1].score <= upper.exemplars[0].score + 1e-6


@given(st.lists(st.floats(0, 1.99), min_size=1, max_size=30), WIDTHS)
def test_below_two_a_bucket_has_the_requested_width(scores: list[float], width: float) -> None:
    for bucket in buckets(_exemplars(scores), width=width, capacity=100):
        assert bucket.low / width == pytest.approx(round(bucket.low / width))
        for exemplar in bucket.exemplars:
            assert bucket.low - 1e-6 <= exemplar.score < bucket.low + width + 1e-6


@given(st.lists(st.floats(2, 500), min_size=1, max_size=30), WIDTHS)
def test_above_two_a_bucket_is_wider_in_proportion(scores: list[float], width: float) -> None:
    for bucket in buckets(_exemplars(scores), width=width, capacity=100):
        high = bucket.low * (1 + width / 2)
        for exemplar in bucket.exemplars:
            assert bucket.low * (1 - 1e-6) <= exemplar.score < high * (1 + 1e-6)


def test_a_score_on_an_edge_belongs_to_the_bucket_above() -> None:
    found = buckets(_exemplars([0.3, 0.7, 1.1, 2.0]), width=0.1, capacity=100)
    assert [bucket.low for bucket in found] == pytest.approx([0.3, 0.7, 1.1, 2.0])


def test_equal_sources_count_once() -> None:
    one = _exemplars([1.05])
    (bucket,) = buckets(one * 3, width=0.1, capacity=100)
    assert bucket.exemplars == tuple(one)


def test_a_bucket_s_score_is_the_mean_of_its_members() -> None:
    (bucket,) = buckets(_exemplars([1.0, 1.02, 1.07]), width=0.1, capacity=100)
    assert bucket.mean_score == pytest.approx(1.03)


@given(SCORES, st.integers(1, 4), DRAWS)
def test_chosen_exemplars_come_from_different_buckets_in_rising_order(
    scores: list[float], count: int, rng: random.Random
) -> None:
    all_of_them = _exemplars(scores)
    chosen = _chosen(all_of_them, Sampling.BUCKET, rng, num_exemplars=count)
    found = buckets(all_of_them, width=0.1, capacity=100)
    assert len(chosen) == min(count, len(found))
    assert [e.score for e in chosen] == sorted(e.score for e in chosen)
    homes = [next(b.low for b in found if e in b.exemplars) for e in chosen]
    assert len(set(homes)) == len(homes)


def test_exemplars_are_drawn_with_the_frequencies_of_equation_1() -> None:
    exemplars = _exemplars([1.0, 1.04, 1.5, 2.5])
    rng, temperature, num_draws = random.Random(3), 0.5, 6000
    drawn = Counter(
        _chosen(exemplars, Sampling.BUCKET, rng, num_exemplars=1, tau=temperature)[0].candidate_id
        for _ in range(num_draws)
    )
    means = [1.02, 1.5, 2.5]
    weights = [math.exp(mean / temperature) for mean in means]
    share = [weight / sum(weights) for weight in weights]
    expected = {"c0": share[0] / 2, "c1": share[0] / 2, "c2": share[1], "c3": share[2]}
    for name, probability in expected.items():
        assert drawn[name] / num_draws == pytest.approx(probability, abs=0.02)


def test_a_temperature_in_units_of_the_spread_does_not_change_with_the_scale_of_speedups() -> None:
    def odds(scores: list[float], unit: TauUnit) -> list[float]:
        return bucket_probabilities(scores, temperature=0.5, unit=unit)

    small, large = [1.0, 1.5, 2.5], [10.0, 15.0, 25.0]
    assert odds(small, TauUnit.SPREAD) == pytest.approx(odds(large, TauUnit.SPREAD))
    assert odds(large, TauUnit.SPEEDUP)[0] < 1e-9 < odds(large, TauUnit.SPREAD)[0]
    assert odds([2.0, 2.0], TauUnit.SPREAD) == [0.5, 0.5]


def test_random_sampling_ignores_scores_and_takes_each_source_once() -> None:
    exemplars = _exemplars([1.0, 50.0, 1.01])
    rng, num_draws = random.Random(4), 3000
    drawn: Counter[str] = Counter()
    for _ in range(num_draws):
        chosen = _chosen(exemplars * 2, Sampling.RANDOM, rng)
        names = [exemplar.candidate_id for exemplar in chosen]
        assert len(set(names)) == 2
        drawn.update(names)
    for name in ("c0", "c1", "c2"):
        assert drawn[name] / num_draws == pytest.approx(2 / 3, abs=0.03)


@pytest.mark.parametrize("sampling", list(Sampling))
def test_one_seed_chooses_the_same_exemplars_of_a_history_in_any_order(sampling: Sampling) -> None:
    exemplars = _exemplars([1.0, 1.2, 1.6, 2.5, 9.0, 1.2])
    one = _chosen(exemplars, sampling, random.Random(8))
    assert one == _chosen(exemplars[::-1], sampling, random.Random(8))


@pytest.mark.parametrize("sampling", list(Sampling))
def test_an_empty_history_gives_no_exemplars(sampling: Sampling) -> None:
    assert not _chosen([], sampling, random.Random(0))


def test_plain_sampling_shows_no_exemplar() -> None:
    assert not _chosen(_exemplars([1.0, 2.0]), Sampling.NONE, random.Random(0))


@pytest.mark.parametrize("sampling", list(Sampling))
def test_an_exemplar_born_in_a_round_or_later_is_not_chosen_in_it(sampling: Sampling) -> None:
    old, *new = [
        Exemplar(candidate_id=f"c{born}", source="", score=1.0 + born, born=born, island=0)
        for born in (2, 3, 4)
    ]
    knobs = KNOBS.model_copy(update={"num_islands": 1})
    for history in ([old, *new], [old]):
        choice = choose(history, knobs, sampling=sampling, at_round=3, rng=random.Random(1))
        assert choice.exemplars == (() if sampling is Sampling.NONE else (old,))


@given(SCORES, DRAWS)
def test_a_prompt_shows_exemplars_of_one_island_only(
    scores: list[float], rng: random.Random
) -> None:
    history = _exemplars(scores)
    choice = choose(history, KNOBS, sampling=Sampling.ISLAND, at_round=0, rng=rng)
    homes = islands(history, num_islands=3, reset_every=5, at_round=0)
    assert choice.island is not None
    assert set(choice.exemplars) <= set(homes[choice.island])
    assert len(choice.exemplars) == min(2, len({e.score for e in homes[choice.island]}))


def test_each_island_is_equally_likely_empty_or_full() -> None:
    rng, num_draws = random.Random(5), 3000
    drawn = Counter(
        choose(_exemplars([2.0]), KNOBS, sampling=Sampling.ISLAND, at_round=0, rng=rng).island
        for _ in range(num_draws)
    )
    for island in range(3):
        assert drawn[island] / num_draws == pytest.approx(1 / 3, abs=0.03)


def test_an_empty_island_gives_a_plain_prompt_that_may_found_it() -> None:
    rng = random.Random(6)
    choices = [
        choose(_exemplars([2.0]), KNOBS, sampling=Sampling.ISLAND, at_round=0, rng=rng)
        for _ in range(40)
    ]
    assert {(choice.island, len(choice.exemplars)) for choice in choices} == {
        (0, 1),
        (1, 0),
        (2, 0),
    }


def test_equal_scores_on_an_island_share_their_chance() -> None:
    """Many sources of one score are no likelier than one of another, as in FunSearch."""
    exemplars = _exemplars([1.0] * 9 + [1.5])
    rng, num_draws = random.Random(7), 4000
    drawn = Counter(
        _chosen(exemplars, Sampling.ISLAND, rng, num_islands=1, num_exemplars=1)[0].score
        for _ in range(num_draws)
    )
    assert drawn[1.5] / num_draws == pytest.approx(math.e / (1 + math.e), abs=0.03)


def test_only_island_sampling_chooses_an_island() -> None:
    for sampling in set(Sampling) - {Sampling.ISLAND}:
        rng = random.Random(9)
        choice = choose(_exemplars([1.0]), KNOBS, sampling=sampling, at_round=0, rng=rng)
        assert choice.island is None


def test_a_full_bucket_keeps_the_exemplars_born_last() -> None:
    history = [
        Exemplar(candidate_id=f"c{n}", source="x", score=1.01 + n / 1000, born=n or None)
        for n in range(6)
    ]
    (bucket,) = buckets(history, width=0.1, capacity=3)
    assert [exemplar.candidate_id for exemplar in bucket.exemplars] == ["c3", "c4", "c5"]


def test_a_source_found_again_takes_no_second_place() -> None:
    first, again, other = (
        Exemplar(candidate_id=name, source="x", score=1.0, born=born)
        for name, born in (("c", 1), ("c", 5), ("d", 3))
    )
    (bucket,) = buckets([again, first, other], width=0.1, capacity=1)
    assert [exemplar.candidate_id for exemplar in bucket.exemplars] == ["d"]


@pytest.mark.parametrize("scores", [[1.2], [1.2, 1.21, 1.25]])
def test_a_single_bucket_gives_a_single_exemplar(scores: list[float]) -> None:
    for seed in range(20):
        shown = _chosen(_exemplars(scores), Sampling.BUCKET, random.Random(seed))
        assert len(shown) == 1
