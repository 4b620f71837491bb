"""Tests of lessons in reading scores, which stages 1 and 2 mix into their pairs."""

from __future__ import annotations

import pytest

from cudal1.prompts.prompt import PromptStyle
from cudal1.settings.params import Params
from tasks.learning.reading import with_lessons
from tests.project import ROOT

PARAMS = Params.load(ROOT / "params.yaml")
PAIRS = [([{"role": "user", "content": f"problem {n}"}], f"answer {n}") for n in range(4)]


@pytest.mark.parametrize("style", list(PromptStyle))
def test_lessons_are_as_many_as_asked_for_in_every_style_of_prompt(style: PromptStyle) -> None:
    policy = PARAMS.policy.model_copy(update={"prompts": style})
    params = PARAMS.model_copy(update={"policy": policy})
    mixed = with_lessons(PAIRS, 1.5, params=params, seed=1)
    assert len(mixed) == 10
    assert all(pair in mixed for pair in PAIRS)


def test_without_lessons_the_pairs_stay_as_they_are() -> None:
    assert with_lessons(PAIRS, 0.0, params=PARAMS, seed=1) == PAIRS
