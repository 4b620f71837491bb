"""Every row answers the same problems as often; the first round's prompts are plain for all.

Rows with exemplars show, in later rounds, what they know of a problem: of a training problem what
their training found, of any other what the exam itself has found so far. Rows without answer the
plain prompt again. So the first round says what the weights know, and all rounds what the method
finds with so many answers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from benchmarks.ablation.judges import Bench
from benchmarks.ablation.memory import Diary, Found
from benchmarks.ablation.plan import Plan
from benchmarks.ablation.sampling import Asked, ask
from cudal1.contrast import Sampling
from cudal1.exemplar import Birth
from cudal1.problem import Problem
from cudal1.record import content_id
from cudal1.train.policy import Sampler


def examine(
    plan: Plan, problems: Sequence[Problem], sampler: Sampler, bench: Bench, diary: Diary,
    known: Sequence[Diary], *, sampling: Sampling, seed: int,
) -> None:  # fmt: skip
    """Fill a diary with a batch a round; rounds that it holds are not repeated.

    `known` is what the row brings along: births before the exam's first round.
    """
    for number in range(plan.exam.rounds):
        batch = f"round {number}"
        if batch in diary:
            continue
        asked = [
            (
                problem,
                _asked(
                    plan,
                    problem,
                    sampler,
                    bench,
                    diary,
                    known,
                    sampling,
                    f"{seed}/{number}/{n}",
                    number,
                ),
            )  # fmt: skip
            for problem in problems
            for n in range(plan.exam.answers_per_round)
        ]
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


def _asked(
    plan: Plan, problem: Problem, sampler: Sampler, bench: Bench, diary: Diary,
    known: Sequence[Diary], sampling: Sampling, chance: str, number: int,
) -> Asked:  # fmt: skip
    rng = random.Random(content_id(chance, problem.id))
    births: list[Birth] = []
    if number and sampling is not Sampling.NONE:
        before = [birth for each in known for birth in each.births(problem.id)]
        births = [birth.model_copy(update={"born": None}) for birth in before]
        births += diary.births(problem.id)
    return ask(
        problem, births, bench.memory, plan.rl, at_round=number, rng=rng,
        sampling=sampling if number else Sampling.NONE,
        max_tokens=plan.max_prompt_tokens, num_tokens=sampler.num_tokens,
    )  # fmt: skip
