"""Tests that curves stand in sections, those that matter first, and that none share a name."""

from __future__ import annotations

import pytest

from tasks.learning.curves import curve


@pytest.mark.parametrize(
    ("name", "drawn"),
    [
        ("copied", "answers/copied"),
        ("reward_turn_2", "answers/reward_turn_2"),
        ("best/cudal1/L1/03_diag_left", "problems/best/cudal1/L1/03_diag_left"),
        ("judge_s", "seconds/judge_s"),
        ("loss", "trainer/loss"),
        ("clip_ratio/low_mean", "trainer/clip_ratio/low_mean"),
        ("reward", "trainer/reward"),
        ("validation_success", "validation/success"),
    ],
)
def test_a_number_has_its_section(name: str, drawn: str) -> None:
    assert curve(name) == drawn


def test_answers_and_marks_stand_first() -> None:
    sections = [curve("copied"), "heldout/success", curve("best/a"), curve("step_s"), curve("loss")]
    assert sections == sorted(sections)
