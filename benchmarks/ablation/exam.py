"""Examine every row with equally many answers; the first round's prompts are plain for all.

In later rounds, rows with exemplars show what they know of a problem. For a training problem this
is what their training found, for any other what the exam itself has found so far. Rows without
exemplars answer the plain prompt again. So the first round shows what the weights know, and all
rounds show what the method finds with so many answers.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from benchmarks.ablation.judges import Bench
from benchmarks.ablation.memory import Diary, Found
from benchmarks.ablation.plan import Plan
from benchmarks.ablation.sampling import Asked, ask
from cudal1.problem import Problem
from cudal1.record import content_id
from cudal1.selection.contrast import Sampling
from cudal1.selection.exemplar import Birth
from cudal1.train.policy import Chat, Sampled


class Examinee(Protocol):
    """A source of answers: a policy (`cudal1.train.policy.Sampler`)."""

    def num_tokens(self, chat: Chat) -> int:
        """Return the number of tokens of a prompt."""
        ...

    def sample(
        self,
        chats: Sequence[Chat],
        *,
        temperature: float,
        top_p: float,
        max_new_tokens: int,
        seed: int,
        batch_size: int,
    ) -> list[Sampled]:
        """Return one answer to each chat, in order."""
        ...


@dataclass(frozen=True)
class Sitting:
    """One row that is examined on one group of problems."""

    examinee: Examinee
    diary: Diary
    """Batches of answers, one for each round; rounds that it holds are not repeated."""
    known: Sequence[Diary]
    """Births that the row knows before the exam's first round."""
    sampling: Sampling
    seed: int


@dataclass(frozen=True)
class _Answer:
    problem: Problem
    asked: Asked
    text: str


def examine(
    plan: Plan, problems: Sequence[Problem], sittings: Sequence[Sitting], bench: Bench
) -> None:
    """Fill the diaries with a batch a round.

    All rows answer, then all answers to one problem are judged, then those to the next: a GPU holds
    one prepared problem, and preparing it takes longer than an answer's verdict.
    """
    for number in range(plan.exam.rounds):
        batch = f"round {number}"
        open_ones = [sitting for sitting in sittings if batch not in sitting.diary]
        answers = [_answers(plan, problems, sitting, bench, number) for sitting in open_ones]
        for problem in problems:
            for answer in itertools.chain.from_iterable(answers):
                if answer.problem == problem:
                    bench.score(problem, answer.text)
        for sitting, mine in zip(open_ones, answers, strict=True):
            sitting.diary.add(batch, [_found(bench, answer, number) for answer in mine])


def _answers(
    plan: Plan, problems: Sequence[Problem], sitting: Sitting, bench: Bench, number: int
) -> list[_Answer]:
    """Return the answers of one row in one round; repeated calls return the same."""
    asked: list[tuple[Problem, Asked]] = []
    for problem, n in itertools.product(problems, range(plan.exam.answers_per_round)):
        rng = random.Random(content_id(f"{sitting.seed}/{number}/{n}", problem.id))
        births = _births(problem, sitting) if number else []
        asked.append(
            (
                problem,
                ask(
                    problem,
                    births,
                    bench.memory,
                    plan.rl,
                    sampling=sitting.sampling,
                    at_round=number,
                    rng=rng,
                    max_tokens=plan.max_prompt_tokens,
                    num_tokens=sitting.examinee.num_tokens,
                ),
            )
        )
    drawn = content_id(str(plan.exam.seed), str(sitting.seed), f"round {number}")
    sampled = sitting.examinee.sample(
        [each.prompt.as_chat() for _, each in asked],
        temperature=plan.exam.temperature,
        top_p=plan.exam.top_p,
        max_new_tokens=plan.max_new_tokens,
        batch_size=plan.batch_size,
        seed=int(drawn, 16) % 2**31,
    )
    return [
        _Answer(problem, each, answer.text)
        for (problem, each), answer in zip(asked, sampled, strict=True)
    ]


def _found(bench: Bench, answer: _Answer, number: int) -> Found:
    judged = bench.score(answer.problem, answer.text)
    return Found(
        problem_id=answer.problem.id,
        born=number,
        island=answer.asked.island,
        candidate_id=None if judged is None else judged.candidate_id,
        score=0.0 if judged is None else judged.score,
        exemplar_ids=answer.asked.prompt.exemplar_ids,
        num_tokens=answer.asked.num_tokens,
    )


def _births(problem: Problem, sitting: Sitting) -> list[Birth]:
    """Return the row's births of a problem; those it brought along precede the first round."""
    before = [birth for each in sitting.known for birth in each.births(problem.id)]
    return [
        *(birth.model_copy(update={"born": None, "island": None}) for birth in before),
        *sitting.diary.births(problem.id),
    ]
