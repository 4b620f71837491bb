"""Tests of islands: their inhabitants, resets, and their dependence on the history alone."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.selection.exemplar import Exemplar
from cudal1.selection.islands import islands


def exemplar(
    name: str, score: float = 1.0, *, born: int | None = None, island: int | None = None
) -> Exemplar:
    return Exemplar(candidate_id=name, source=f"# {name}", score=score, born=born, island=island)


def names(found: list[tuple[Exemplar, ...]]) -> list[list[str]]:
    return [sorted(member.candidate_id for member in members) for members in found]


def at(
    history: list[Exemplar], at_round: int, *, num_islands: int = 2, reset_every: int = 100
) -> list[list[str]]:
    return names(
        islands(history, num_islands=num_islands, reset_every=reset_every, at_round=at_round)
    )


SCORES = dict(zip("abcdefgh", [1.0, 1.0, 1.0, 1.5, 1.5, 2.0, 2.0, 3.0], strict=True))
HISTORIES = st.lists(
    st.builds(
        lambda name, born, island: exemplar(name, SCORES[name], born=born, island=island),
        st.sampled_from("abcdefgh"),
        st.none() | st.integers(0, 9),
        st.none() | st.integers(0, 3),
    ),
    max_size=25,
)


def test_seeds_are_dealt_out_evenly_by_their_content_ids() -> None:
    seeds = [exemplar(name) for name in "edcba"]
    assert at(seeds, 0) == [["a", "c", "e"], ["b", "d"]]


def test_fewer_successes_than_islands_leave_some_empty() -> None:
    assert at([exemplar("a")], 0, num_islands=3) == [["a"], [], []]


def test_an_empty_history_leaves_all_islands_empty_in_any_round() -> None:
    assert at([], 7, num_islands=3, reset_every=2) == [[], [], []]


def test_a_success_lives_on_the_island_of_its_exemplars() -> None:
    history = [exemplar("a"), exemplar("b"), exemplar("child", born=0, island=1)]
    assert at(history, 1) == [["a"], ["b", "child"]]


def test_an_answer_to_a_plain_prompt_goes_to_the_emptiest_island() -> None:
    history = [exemplar("a", born=0, island=0), exemplar("plain", born=1)]
    assert at(history, 2) == [["a"], ["plain"]]


def test_a_source_that_lives_already_is_not_dealt_out_again() -> None:
    history = [exemplar("a", born=0, island=1), exemplar("a", born=1), exemplar("a", born=2)]
    assert at(history, 3) == [[], ["a"]]


def test_a_source_found_twice_on_an_island_lives_there_once() -> None:
    history = [exemplar("a", born=0, island=0), exemplar("a", born=1, island=0)]
    assert at(history, 2) == [["a"], []]


def test_a_source_found_on_two_islands_lives_on_both() -> None:
    history = [exemplar("a", born=0, island=0), exemplar("a", born=1, island=1)]
    assert at(history, 2) == [["a"], ["a"]]


def test_a_success_of_an_unknown_island_is_dealt_out() -> None:
    assert at([exemplar("a", born=0, island=7)], 1) == [["a"], []]


def test_a_success_born_later_does_not_exist_yet() -> None:
    history = [exemplar("a", born=2, island=0), exemplar("b", born=3, island=1)]
    assert at(history, 3) == [["a"], []]


FOUR = [
    exemplar("best", 4.0, born=0, island=2),
    exemplar("poor", 1.0, born=0, island=2),
    exemplar("good", 3.0, born=0, island=0),
    exemplar("fair", 2.0, born=0, island=1),
    exemplar("weak", 1.1, born=0, island=3),
]


def test_a_reset_empties_the_worse_half_and_seeds_it_from_the_better() -> None:
    before, after = (at(FOUR, number, num_islands=4, reset_every=3) for number in (2, 3))
    assert before == [["good"], ["fair"], ["best", "poor"], ["weak"]]
    assert after == [["good"], ["good"], ["best", "poor"], ["best"]]


def test_a_success_born_after_a_reset_lives_beside_the_founder() -> None:
    history = [*FOUR, exemplar("heir", 1.2, born=3, island=3)]
    assert at(history, 4, num_islands=4, reset_every=3)[3] == ["best", "heir"]


def test_a_removed_source_lives_again_when_found_again() -> None:
    history = [*FOUR, exemplar("weak", 1.1, born=4, island=3)]
    assert at(history, 5, num_islands=4, reset_every=3)[3] == ["best", "weak"]


def test_the_larger_half_of_an_odd_number_of_islands_survives() -> None:
    after = at(FOUR[:-1], 3, num_islands=3, reset_every=3)
    assert after == [["good"], ["best"], ["best", "poor"]]


def test_a_single_island_is_never_emptied() -> None:
    assert at(FOUR, 9, num_islands=1, reset_every=2) == [["best", "fair", "good", "poor", "weak"]]


def test_empty_islands_are_the_worst_and_are_founded_at_a_reset() -> None:
    after = at([exemplar("a", born=0, island=0)], 3, num_islands=4, reset_every=3)
    assert after[0] == ["a"]
    assert sorted(after[1:]) == [[], ["a"], ["a"]]


def test_a_tie_does_not_always_empty_the_same_island() -> None:
    equals = [exemplar(name, born=0, island=i) for i, name in enumerate("ab")]
    survivors = {
        at(equals, number, reset_every=number)[0][0] for number in range(1, 20)
    }  # the other island's founder stands on the emptied island
    assert survivors == {"a", "b"}


@given(HISTORIES, st.integers(0, 10), st.integers(1, 4))
def test_the_order_of_the_history_does_not_matter(
    history: list[Exemplar], at_round: int, reset_every: int
) -> None:
    shuffled = random.Random(1).sample(history, len(history))
    one, other = (
        at(some, at_round, num_islands=3, reset_every=reset_every) for some in (history, shuffled)
    )
    assert one == other


@given(HISTORIES, st.integers(0, 10), st.integers(1, 4))
def test_later_results_do_not_change_an_earlier_round(
    history: list[Exemplar], at_round: int, reset_every: int
) -> None:
    then = [e for e in history if e.born is None or e.born < at_round]
    one, other = (
        at(some, at_round, num_islands=3, reset_every=reset_every) for some in (history, then)
    )
    assert one == other


@given(HISTORIES, st.integers(0, 10), st.integers(1, 4))
def test_the_best_success_of_all_survives_every_reset(
    history: list[Exemplar], at_round: int, reset_every: int
) -> None:
    known = [e.score for e in history if e.born is None or e.born < at_round]
    found = islands(history, num_islands=3, reset_every=reset_every, at_round=at_round)
    assert max((e.score for members in found for e in members), default=None) == max(
        known, default=None
    )


@pytest.mark.parametrize("num_islands", [1, 2, 5])
def test_there_are_as_many_islands_as_requested(num_islands: int) -> None:
    assert len(at(FOUR, 9, num_islands=num_islands, reset_every=2)) == num_islands
