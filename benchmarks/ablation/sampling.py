"""Build a row's prompts: plain, or with exemplars of the row's choice that fit the policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.ablation.memory import Memory
from cudal1.problem import Problem
from cudal1.prompts.prompt import Prompt, PromptStyle, fitting_contrastive_prompt
from cudal1.selection.contrast import Choice, ContrastParams, Sampling, choose
from cudal1.selection.exemplar import Birth


@dataclass(frozen=True)
class Asked:
    """A prompt, and the choice that it was made by."""

    prompt: Prompt
    island: int | None
    num_tokens: int


def ask(
    problem: Problem,
    births: Sequence[Birth],
    memory: Memory,
    knobs: ContrastParams,
    *,
    sampling: Sampling,
    at_round: int,
    rng: random.Random,
    max_tokens: int,
    num_tokens: Callable[[Sequence[dict[str, str]]], int],
) -> Asked:
    """Return the prompt that shows `sampling`'s choice; if too long, less its worst exemplar."""
    choice: Choice[Birth] = choose(births, knobs, sampling=sampling, at_round=at_round, rng=rng)
    prompt, tokens = fitting_contrastive_prompt(
        problem,
        memory.shown(choice.exemplars),
        style=PromptStyle.COMPACT,
        max_tokens=max_tokens,
        num_tokens=num_tokens,
    )
    return Asked(prompt, choice.island, tokens)
