"""Every row answers the same problems as often; the first round's prompts are plain for all.

Rows with exemplars show, in later rounds, what they know of a problem: of a training problem what
their training found, of any other what the exam itself has found so far. Rows without answer the
plain prompt again. So the first round says what the weights know, and all rounds what the method
finds with so many answers.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Protocol

from benchmarks.ablation.judges import Bench
from benchmarks.ablation.memory import Diary, Found
from benchmarks.ablation.plan import Plan
from benchmarks.ablation.sampling import Asked, ask
from cudal1.contrast import Sampling
from cudal1.exemplar import Birth
from cudal1.problem import Problem
from cudal1.record import content_id
from cudal1.train.policy import Chat, Sampled


class Examinee(Protocol):
    """Whoever answers: a policy (`cudal1.train.policy.Sampler`)."""

    def num_tokens(self, chat: Chat) -> int:
        """Tokens of a prompt."""
        ...

    def sample(
        self, chats: Sequence[Chat], *, temperature: float, top_p: float, max_new_tokens: int,
        seed: int, batch_size: int,
    ) -> list[Sampled]:  # fmt: skip
        """One answer to each chat, in order."""
        ...


def examine(
    plan: Plan, problems: Sequence[Problem], sampler: Examinee, bench: Bench, diary: Diary,
    known: Sequence[Diary], *, sampling: Sampling, seed: int,
) -> None:  # fmt: skip
    """Fill a diary with a batch a round; rounds that it holds are not repeated.

    `known` is what the row brings along: births before the exam's first round.
    """
    for number in range(plan.exam.rounds):
        batch = f"round {number}"
        if batch in diary:
            continue
        asked: list[tuple[Problem, Asked]] = []
        for problem, n in itertools.product(problems, range(plan.exam.answers_per_round)):
            rng = random.Random(content_id(f"{seed}/{number}/{n}", problem.id))
            births = _births(problem, diary, known) if number else []
            asked.append((problem, ask(
                problem, births, bench.memory, plan.rl, sampling=sampling, at_round=number, rng=rng,
                max_tokens=plan.max_prompt_tokens, num_tokens=sampler.num_tokens,
            )))  # fmt: skip
        answers = sampler.sample(
            [each.prompt.as_chat() for _, each in asked], temperature=plan.exam.temperature,
            top_p=plan.exam.top_p, max_new_tokens=plan.max_new_tokens, batch_size=plan.batch_size,
            seed=int(content_id(str(plan.exam.seed), str(seed), batch), 16) % 2**31,
        )  # fmt: skip
        found: list[Found] = []
        for (problem, each), answer in zip(asked, answers, strict=True):
            judged = bench.score(problem, answer.text)
            found.append(Found(
                problem_id=problem.id, candidate_id=None if judged is None else judged.candidate_id,
                score=0.0 if judged is None else judged.score, born=number, island=each.island,
                with_exemplars=len(each.prompt.exemplar_ids), num_tokens=each.num_tokens,
            ))  # fmt: skip
        diary.add(batch, found)


def _births(problem: Problem, diary: Diary, known: Sequence[Diary]) -> list[Birth]:
    """What the row knows of a problem: what it brought along was there before the first round."""
    before = [birth for each in known for birth in each.births(problem.id)]
    return [
        *(birth.model_copy(update={"born": None, "island": None}) for birth in before),
        *diary.births(problem.id),
    ]
