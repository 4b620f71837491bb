"""Keep a small policy able to read scores while it learns from plain prompts.

Fine-tuning on plain prompts alone makes a small policy forget within a dozen steps how it reads
scores (docs/log/2026-11-25-score-reader.md). So stages 1 and 2 mix lessons in reading into their
pairs: contrastive prompts with made-up scores, as in its pretraining. The scores are drawn anew for
each, so nothing of a device can be learned from them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from cudal1.problem import Problem
from cudal1.program.identity import program_id
from cudal1.services.judging import device_facts
from cudal1.settings.params import Params
from cudal1.train.sft import Pair
from tasks.pretrain import lessons_in_reading


def with_lessons(pairs: Sequence[Pair], share: float, *, params: Params, seed: int) -> list[Pair]:
    """Return the pairs, mixed with `share` times as many lessons in reading scores."""
    count = round(share * len(pairs))
    if not count:
        return list(pairs)
    lessons = lessons_in_reading(
        seed, count, style=params.policy.prompts, facts=device_facts(params)
    )
    mixed = [*pairs, *(([{"role": "user", "content": p}], answer) for p, answer in lessons)]
    random.Random(seed).shuffle(mixed)
    return mixed


def is_copy(source: str, problem: Problem) -> bool:
    """Return whether a source is the reference's program: there is nothing to learn from it."""
    return program_id(source) == program_id(problem.as_candidate)
