"""One round of a search: ask, find candidates, judge, and note what the next prompts show.

Each choice follows from the plan and the answers before it, and answers and verdicts are in the
ledger. So a search that was killed goes through its rounds again and makes what is missing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace

from cudal1.candidate import Candidate, Completion
from cudal1.ledger import Ledger
from cudal1.llm.provider import EXHAUSTED, Provider, has_failed, request_to
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import Prompt, contrastive_prompt, refinement_prompt
from cudal1.record import content_id
from cudal1.selection.contrast import Sampling, choose
from cudal1.selection.exemplar import Exemplar
from cudal1.selection.failures import LESSONS, Failure, newest
from cudal1.selection.reward import speed_reward
from cudal1.services.answers import keep_completion
from cudal1.services.asking import Asking
from cudal1.services.attempts import attempt_of, failure_of
from cudal1.services.judging import Advance, VerdictSource
from cudal1.services.searching.hunt import Answered, Asked, Hunt, Plan, Trajectory
from cudal1.settings.params import MethodKind
from cudal1.verdict import Verdict


def requests(
    plan: Plan, provider: Provider, hunts: Sequence[Hunt], *, number: int, first_attempt: int
) -> list[Asked]:
    """Return the requests of round `number`, problem by problem, attempts from `first_attempt`."""
    asked: list[Asked] = []
    for hunt in hunts:
        if hunt.is_exhausted:
            continue
        for place in range(plan.answers_per_round):
            attempt = first_attempt + place
            prompt, island, trajectory = (
                _refining(plan, hunt, place)
                if plan.method is MethodKind.REFINE
                else _contrasting(plan, hunt, number, attempt)
            )
            request = request_to(
                provider,
                stage=plan.stage,
                problem=hunt.problem,
                prompt=prompt,
                attempt=attempt,
                seed=plan.seed,
            )
            asked.append(_on_island(Asked(hunt, request, island, trajectory)))
    return asked


def answers(line: Asking, asked: Sequence[Asked]) -> dict[str, Completion]:
    """Return the provider's answer to each request, by id; some are missing if it has stopped."""
    for each in asked:
        line.ask(each.request)
    found: dict[str, Completion] = {}
    while line.num_waiting:
        completion = line.answer()
        if completion is not None:
            found[completion.id] = completion
    return found


def candidates(
    ledger: Ledger, asked: Sequence[Asked], given: Mapping[str, Completion]
) -> list[Answered]:
    """Store the candidate in each given answer, and return the answers in the order of requests."""
    return [
        Answered(
            each.hunt,
            given[each.request.id],
            _candidate(ledger, each, given[each.request.id]),
            each.island,
            each.trajectory,
        )
        for each in asked
        if each.request.id in given
    ]


def judge_round(
    ledger: Ledger,
    judge: VerdictSource,
    answered: Sequence[Answered],
    *,
    number: int,
    advance: Advance,
) -> list[Verdict | None]:
    """Judge the candidates, and note the reward of each answer for the next round's prompts.

    Return the verdict on each answer, in order; None for an answer without a candidate.
    """
    pairs = [(each.hunt.problem, each.candidate) for each in answered if each.candidate]
    advance(len(answered) - len(pairs))
    judged = iter(judge.judge_all(pairs, advance=advance))
    verdicts = [None if each.candidate is None else next(judged) for each in answered]
    for each, verdict in zip(answered, verdicts, strict=True):
        note(ledger, each, verdict, number=number)
    return verdicts


def note(ledger: Ledger, answered: Answered, verdict: Verdict | None, *, number: int) -> None:
    """Note the outcome of one answer of round `number` in its hunt."""
    hunt, completion, candidate = answered.hunt, answered.completion, answered.candidate
    if completion.finish_reason == EXHAUSTED:
        hunt.is_exhausted = True
        return
    if has_failed(completion):
        hunt.num_failed += 1
        return
    reward = speed_reward(verdict)
    hunt.rewards.append(reward)
    if answered.trajectory is not None:
        attempt = attempt_of(ledger, completion, candidate, verdict)
        answered.trajectory.attempts.append(attempt)
        answered.trajectory.last = completion.id
    if candidate is not None and verdict is not None and verdict.status in LESSONS:
        hunt.failures.append(
            Failure(
                attempt=failure_of(candidate, verdict),
                program_id=program_id(candidate.source),
                island=answered.island,
            )
        )
    if candidate is not None and reward > 0:
        hunt.found.append(
            Exemplar(
                candidate_id=candidate.id,
                source=candidate.source,
                score=reward,
                born=number,
                island=answered.island,
            )
        )


def _contrasting(
    plan: Plan, hunt: Hunt, number: int, attempt: int
) -> tuple[Prompt, int | None, None]:
    """Return a prompt that shows successes of earlier rounds, and their island."""
    rng = random.Random(content_id(str(plan.seed), hunt.problem.id, str(attempt)))
    choice = choose(hunt.found, plan.contrast, sampling=plan.sampling, at_round=number, rng=rng)
    prompt = contrastive_prompt(
        hunt.problem,
        choice.exemplars,
        failures=[]
        if plan.sampling is Sampling.NONE
        else newest(hunt.failures, count=plan.contrast.num_failures, island=choice.island),
        style=plan.prompts,
        facts=plan.facts,
        behind=plan.behind,
    )
    return prompt, choice.island if number else None, None


def _refining(plan: Plan, hunt: Hunt, place: int) -> tuple[Prompt, None, Trajectory]:
    """Return a prompt that shows the attempts of one trajectory, and the trajectory."""
    trajectory = hunt.trajectories.setdefault(place, Trajectory())
    prompt = refinement_prompt(
        hunt.problem, trajectory.attempts, style=plan.prompts, facts=plan.facts
    )
    return prompt, None, trajectory


def _on_island(asked: Asked) -> Asked:
    """Return the same request with the island in its name: an answer lives on one island.

    In the first round there are no islands. Its answers belong to none, and are those that other
    methods get. Its successes are dealt out to islands.
    """
    if asked.island is None:
        return asked
    name = content_id(asked.request.id, f"island {asked.island}")
    return replace(asked, request=asked.request.model_copy(update={"id": name}))


def _candidate(ledger: Ledger, asked: Asked, completion: Completion) -> Candidate | None:
    """Store the candidate in an answer, and return it."""
    if completion.finish_reason == EXHAUSTED or has_failed(completion):
        return None
    place: dict[str, object] = {"island": asked.island}
    if asked.trajectory is not None:
        place |= {"turn": len(asked.trajectory.attempts) + 1, "follows": asked.trajectory.last}
    return keep_completion(ledger, completion.model_copy(update=place))
