"""Rewards of answers to one prompt: copies earn nothing, except under the paper's form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cudal1.selection.progress import CORRECT, Outcome, RewardForm, rewards, shares

OURS = [form for form in RewardForm if form is not RewardForm.SPEEDUP]
OUTCOMES = st.builds(
    Outcome,
    speedup=st.sampled_from([0.0, 0.5, 1.0, 1.7, 2.0, 3.0]),
    best_shown=st.none() | st.sampled_from([0.8, 1.5, 2.0]),
    is_copy=st.booleans(),
)


def outcome(speedup: float, shown: float | None = 2.0, *, is_copy: bool = False) -> Outcome:
    return Outcome(speedup, shown, is_copy)


@pytest.mark.parametrize("form", OURS)
@given(group=st.lists(OUTCOMES, min_size=1, max_size=8))
def test_copies_and_failures_earn_nothing(form: RewardForm, group: list[Outcome]) -> None:
    for answer, reward in zip(group, rewards(form, group), strict=True):
        if answer.is_copy or answer.speedup == 0:
            assert reward == 0
        assert reward >= 0


@pytest.mark.parametrize("form", list(RewardForm))
@given(group=st.lists(OUTCOMES, min_size=2, max_size=8), shown=st.none() | st.just(1.5))
def test_the_faster_answer_to_a_prompt_never_earns_less(
    form: RewardForm, group: list[Outcome], shown: float | None
) -> None:
    asked = [Outcome(each.speedup, shown, is_copy=False) for each in group]
    ranked = sorted(zip([each.speedup for each in asked], rewards(form, asked), strict=True))
    assert [reward for _, reward in ranked] == sorted(reward for _, reward in ranked)


def test_the_papers_form_pays_copies_in_full() -> None:
    assert rewards(RewardForm.SPEEDUP, [outcome(2.0, is_copy=True), outcome(3.0)]) == [2.0, 3.0]


def test_a_ratio_is_to_the_best_that_was_shown() -> None:
    group = [outcome(3.0), outcome(1.0), outcome(2.0, is_copy=True)]
    assert rewards(RewardForm.RATIO, group) == [1.5, 0.5, 0.0]


def test_the_reference_is_shown_even_where_no_exemplar_is_faster() -> None:
    assert rewards(RewardForm.RATIO, [outcome(2.0, None), outcome(2.0, 0.5)]) == [2.0, 2.0]


def test_a_margin_counts_from_what_was_shown() -> None:
    group = [outcome(3.0), outcome(1.0), outcome(0.0)]
    assert rewards(RewardForm.MARGIN, group) == [CORRECT + 0.5, CORRECT, 0.0]


def test_a_rank_is_the_share_of_others_that_are_beaten() -> None:
    group = [outcome(3.0), outcome(1.0), outcome(1.0), outcome(0.0), outcome(2.0, is_copy=True)]
    assert rewards(RewardForm.RANK, group) == [1.0, 0.625, 0.625, 0.0, 0.0]


def test_only_the_best_of_a_group_is_paid_for_the_margin_to_the_next() -> None:
    group = [outcome(3.0), outcome(4.0), outcome(1.0)]
    assert rewards(RewardForm.MARGINAL, group) == [CORRECT, CORRECT + 0.5, CORRECT]


def test_two_that_are_equally_good_add_nothing() -> None:
    assert rewards(RewardForm.MARGINAL, [outcome(4.0), outcome(4.0)]) == [CORRECT, CORRECT]


def test_shares_are_of_answers_that_were_shown_exemplars() -> None:
    answers = [outcome(2.1), outcome(2.0, is_copy=True), outcome(0.0), outcome(9.0, None)]
    assert shares(answers) == pytest.approx(
        {"copied": 1 / 3, "progressed": 1 / 3, "over_best": 1.05 / 3}
    )
    assert shares(answers[-1:]) == {}
