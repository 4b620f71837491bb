"""Sample answers from a policy and judge them: to examine it, and to let it teach itself.

With several turns each answer goes on from the attempts of its own trajectory, which its prompt
shows with what became of them. The number of answers is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from cudal1.candidate import Candidate, Completion
from cudal1.errors import ConfigError
from cudal1.ledger import Ledger
from cudal1.problem import Problem, Split
from cudal1.prompts.prompt import Prompt, fitting_refinement_prompt, generation_prompt
from cudal1.record import content_id
from cudal1.selection import intervals
from cudal1.selection.exemplar import Attempt
from cudal1.selection.reward import speed_reward, success_reward
from cudal1.services.answers import keep_completions
from cudal1.services.attempts import attempt_of
from cudal1.services.judging import Advance, VerdictSource, device_facts, verdict_source
from cudal1.train.policy import Chat, Sampler
from cudal1.verdict import Verdict
from tasks.products import admitted_problems, evenly_spread
from tasks.progress import progress
from tasks.stage import Stage

HELDOUT = "heldout_"
"""Prefix of a stage's marks on held-out problems among its numbers."""
CHUNK = 64
"""Answers sampled at a time, while earlier ones are built, and judged on free devices."""

Sampled = tuple["Question", Completion, Candidate | None]
"""An answer before it is judged."""


@dataclass(frozen=True)
class Question:
    """A prompt about a problem, and the place of its answer among those to the problem."""

    problem: Problem
    prompt: Prompt
    attempt: int
    attempts: tuple[Attempt, ...] = ()
    """Earlier attempts of its trajectory."""
    follows: str | None = None
    """The answer before it in its trajectory."""


@dataclass(frozen=True)
class Answer:
    """One sampled answer and its verdict."""

    question: Question
    completion: Completion
    candidate: Candidate | None
    verdict: Verdict | None

    @property
    def problem(self) -> Problem:
        """Return the problem that it answers."""
        return self.question.problem


@dataclass(frozen=True)
class Sampling:
    """The settings of sampling."""

    num_samples: int
    """Number of answers to each problem."""
    turns: int
    """Answers of a trajectory; `num_samples` is a multiple."""
    temperature: float
    top_p: float
    seed: int
    max_new_tokens: int
    batch_size: int
    author: str = "policy"
    """Name of the policy among the ledger's providers."""


def fitting_problems(
    stage: Stage,
    num_tokens: Callable[[Chat], int],
    split: Split,
    *,
    count: int,
    without: Collection[str] = (),
) -> list[Problem]:
    """Return up to `count` problems of a split with prompts that fit the policy, evenly spread.

    Args:
        stage: the stage that asks.
        num_tokens: returns the policy's length of a prompt.
        split: of the problems.
        count: most problems.
        without: ids of problems that are left out.
    """
    section, facts = stage.params.policy, device_facts(stage.params)
    problems = [
        problem
        for problem in admitted_problems(split)
        if problem.id not in without
        and num_tokens(generation_prompt(problem, style=section.prompts, facts=facts).as_chat())
        <= section.max_prompt_tokens
    ]
    if not problems:
        raise ConfigError(
            f"{stage.name}: no {split} problem has a prompt of at most {section.max_prompt_tokens} "
            "tokens; raise policy.max_prompt_tokens, or admit more problems"
        )
    return evenly_spread(problems, count)


def sample_and_judge(
    stage: Stage,
    ledger: Ledger,
    judge: VerdictSource,
    sampler: Sampler,
    problems: Sequence[Problem],
    sampling: Sampling,
    what: str,
    *,
    timing: bool,
) -> list[Answer]:
    """Return `num_samples` judged answers to each problem; the ledger's answers are reused.

    Without `timing`, answers are checked, and their speed is left open.
    """
    style, facts = stage.params.policy.prompts, device_facts(stage.params)
    asked = [
        Question(problem, generation_prompt(problem, style=style, facts=facts), index)
        for problem in problems
        for index in range(sampling.num_samples // sampling.turns)
    ]
    answers: list[Answer] = []
    with progress(what, len(problems) * sampling.num_samples) as advance:
        for turn in range(sampling.turns):
            found = _answered(
                stage, ledger, judge, sampler, asked, sampling, advance=advance, timing=timing
            )
            answers += found
            if turn + 1 < sampling.turns:
                asked = [_next(stage, ledger, sampler, answer, sampling) for answer in found]
    return answers


def _answered(
    stage: Stage,
    ledger: Ledger,
    judge: VerdictSource,
    sampler: Sampler,
    asked: Sequence[Question],
    sampling: Sampling,
    *,
    advance: Advance,
    timing: bool,
) -> list[Answer]:
    """Return the judged answer to each question; a chunk is judged while the next is sampled."""
    answers: list[Answer] = []
    before: list[Sampled] = []
    for first in range(0, len(asked) + CHUNK, CHUNK):  # the last chunk samples nothing
        part = asked[first : first + CHUNK]
        sampled = _sampled(stage, ledger, judge, sampler, part, sampling)
        answers += _judged(judge, before, timing=timing)
        advance(len(before))
        for question, _, candidate in sampled:
            if candidate is not None:
                judge.expect(question.problem, candidate, timing=timing)
        before = sampled
    return answers


def _next(
    stage: Stage, ledger: Ledger, sampler: Sampler, answer: Answer, sampling: Sampling
) -> Question:
    """Return the question that goes on from an answer."""
    before, policy = answer.question, stage.params.policy
    attempts = (
        *before.attempts,
        attempt_of(ledger, answer.completion, answer.candidate, answer.verdict),
    )
    prompt, _ = fitting_refinement_prompt(
        before.problem,
        attempts,
        style=policy.prompts,
        facts=device_facts(stage.params),
        max_tokens=stage.params.max_examined_tokens(),
        num_tokens=sampler.num_tokens,
    )
    return Question(
        before.problem,
        prompt,
        before.attempt + sampling.num_samples // sampling.turns,
        attempts,
        follows=answer.completion.id,
    )


def _judged(judge: VerdictSource, sampled: Sequence[Sampled], *, timing: bool) -> list[Answer]:
    candidates = [
        (question.problem, candidate) for question, _, candidate in sampled if candidate is not None
    ]
    verdicts = iter(judge.verdicts(candidates, timing=timing))
    return [
        Answer(question, completion, candidate, None if candidate is None else next(verdicts))
        for question, completion, candidate in sampled
    ]


def _sampled(
    stage: Stage,
    ledger: Ledger,
    judge: VerdictSource,
    sampler: Sampler,
    asked: Sequence[Question],
    sampling: Sampling,
) -> list[Sampled]:
    """Return answers with the candidate in each; all are stored before any is judged."""
    settings = f"{sampling.temperature}/{sampling.top_p}/{sampling.max_new_tokens}/{sampling.seed}"
    ids = [
        content_id(sampler.id, settings, each.problem.id, each.prompt.id, str(each.attempt))
        for each in asked
    ]
    found = {key: ledger.completion(key) for key in ids}
    missing = [i for i, key in enumerate(ids) if found[key] is None]
    if missing:
        judge.get_ready()
    made = sampler.sample(
        [asked[i].prompt.as_chat() for i in missing],
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        max_new_tokens=sampling.max_new_tokens,
        batch_size=sampling.batch_size,
        seed=int(content_id(settings, *(ids[i] for i in missing)), 16) % 2**31,
    )
    for i, sampled in zip(missing, made, strict=True):
        question = asked[i]
        found[ids[i]] = Completion(
            id=ids[i],
            stage=stage.name,
            provider=sampling.author,
            problem_id=question.problem.id,
            prompt_id=question.prompt.id,
            template_id=question.prompt.template_id,
            attempt=question.attempt,
            text=sampled.text,
            finish_reason=sampled.finish_reason,
            num_prompt_tokens=sampled.num_prompt_tokens,
            num_completion_tokens=sampled.num_completion_tokens,
            exemplar_ids=question.prompt.exemplar_ids,
            exemplar_scores=question.prompt.exemplar_scores,
            turn=len(question.attempts) + 1,
            follows=question.follows,
        )
    answers = [answer for key in ids if (answer := found[key]) is not None]
    candidates = keep_completions(ledger, answers)
    return list(zip(asked, answers, candidates, strict=True))


def examine(
    stage: Stage, ledger: Ledger, policy: Path, judge: VerdictSource | None = None
) -> Mapping[str, float | int]:
    """Return a policy's marks on held-out problems: share of successes, mean and best reward.

    `judge` is a source of verdicts that is open already, if there is one.
    """
    section = stage.params.evaluation
    sampler = Sampler(policy)
    problems = fitting_problems(
        stage, sampler.num_tokens, Split.HELDOUT, count=section.num_problems
    )
    sampling = Sampling(
        num_samples=section.num_samples,
        turns=section.turns,
        temperature=section.temperature,
        top_p=section.top_p,
        seed=section.seed,
        max_new_tokens=stage.params.policy.max_new_tokens,
        batch_size=stage.params.policy.batch_size,
    )
    with verdict_source(ledger, stage.params) if judge is None else nullcontext(judge) as opened:
        answers = sample_and_judge(
            stage, ledger, opened, sampler, problems, sampling, "held-out answers", timing=True
        )
    marks = marks_of(answers)
    return {f"{HELDOUT}{name}": value for name, value in marks.items()}


def unprefixed(marks: Mapping[str, float | int]) -> dict[str, float]:
    """Return marks by their names alone."""
    return {name.removeprefix(HELDOUT): value for name, value in marks.items()}


def marks_of(answers: Sequence[Answer]) -> dict[str, float | int]:
    """Return success rate, mean reward, and mean of the best reward per problem.

    The first two have 95 % intervals over problems, if there are two problems.
    """
    rewards: dict[str, list[float]] = {}
    successes: dict[str, list[float]] = {}
    for answer in answers:
        rewards.setdefault(answer.problem.id, []).append(speed_reward(answer.verdict))
        successes.setdefault(answer.problem.id, []).append(success_reward(answer.verdict))
    if not answers:
        return {"success": 0.0, "mean_reward": 0.0, "mean_best_reward": 0.0, "num_answers": 0}
    return {
        "success": fmean(success_reward(answer.verdict) for answer in answers),
        **_ends("success", successes),
        "mean_reward": fmean(speed_reward(answer.verdict) for answer in answers),
        **_ends("mean_reward", rewards),
        "mean_best_reward": fmean(max(each) for each in rewards.values()),
        "num_answers": len(answers),
    }


def _ends(name: str, numbers: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return both ends of a mark's interval."""
    found = intervals.mean(numbers)
    return {} if found is None else {f"{name}_low": found.low, f"{name}_high": found.high}
