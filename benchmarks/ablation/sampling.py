"""A row's prompts: plain, or with exemplars of the row's choice that fit the policy."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.ablation.memory import Memory
from cudal1.contrast import Choice, ContrastParams, Sampling, choose
from cudal1.exemplar import Birth
from cudal1.problem import Problem
from cudal1.prompt import Prompt, PromptStyle, fitting_contrastive_prompt


@dataclass(frozen=True)
class Asked:
    """A prompt and where it came from."""

    prompt: Prompt
    island: int | None
    num_tokens: int


def ask(
    problem: Problem, births: Sequence[Birth], memory: Memory, knobs: ContrastParams, *,
    sampling: Sampling, at_round: int, rng: random.Random, max_tokens: int,
    num_tokens: Callable[[Sequence[dict[str, str]]], int],
) -> Asked:  # fmt: skip
    """The prompt that shows what `sampling` chooses; too long a one loses its worst exemplar."""
    choice: Choice[Birth] = choose(births, knobs, sampling=sampling, at_round=at_round, rng=rng)
    prompt, tokens = fitting_contrastive_prompt(
        problem, memory.shown(choice.exemplars), style=PromptStyle.COMPACT, max_tokens=max_tokens,
        num_tokens=num_tokens,
    )  # fmt: skip
    return Asked(prompt, choice.island, tokens)
