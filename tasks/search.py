"""Stage `search@METHOD`: search with a provider that learns nothing, as in the paper's table 5.

`vanilla` takes the best of many answers to the plain prompt. `evolve` asks in rounds: each prompt
shows earlier successes of this method on this problem with their scores. The first round has no
successes, so its prompt is the plain one, which shows the reference; with the same provider its
answers are `vanilla`'s first. Behind the successes stand failures, where these are asked for.

`refine` asks in rounds, too: a round is a turn (Kevin-32B, arXiv 2507.11948). Each answer of the
first round begins a trajectory, and each later one goes on from the attempts of its own trajectory,
which its prompt shows with what became of them.

Every method gives each problem as many answers, all judged in full. A method with a provider that
stops ends with its complete rounds.

Each choice follows from the parameters and the answers before it, and answers and verdicts are in
the ledger. So a run that was killed goes through its rounds again and makes what is missing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

import polars as pl

from cudal1.candidate import Candidate, Completion
from cudal1.errors import ConfigError
from cudal1.ledger import Ledger
from cudal1.ledger.shards import write_parquet
from cudal1.llm.provider import EXHAUSTED, Provider, Request, has_failed, request_to
from cudal1.problem import Problem
from cudal1.program.identity import program_id
from cudal1.prompts.prompt import Prompt, contrastive_prompt, refinement_prompt
from cudal1.record import content_id
from cudal1.selection.contrast import Sampling, choose
from cudal1.selection.exemplar import Attempt, Exemplar
from cudal1.selection.failures import LESSONS, Failure, newest
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP
from cudal1.selection.reward import speed_reward
from cudal1.services.answers import keep_completion
from cudal1.services.asking import Asking, asking, provider_of
from cudal1.services.attempts import attempt_of, failure_of
from cudal1.services.judging import Advance, VerdictSource, device_facts, verdict_source
from cudal1.settings.params import MethodKind
from cudal1.settings.provider_settings import LocalSettings
from cudal1.verdict import Verdict
from tasks.products import admitted_problems, evenly_spread
from tasks.progress import progress
from tasks.stage import DATA, Stage, log, main


@dataclass
class Trajectory:
    """The attempts of one trajectory so far, the newest last."""

    attempts: list[Attempt] = field(default_factory=list[Attempt])
    last: str | None = None
    """The newest answer."""


@dataclass
class Hunt:
    """One problem, and the method's finds for it so far."""

    problem: Problem
    found: list[Exemplar] = field(default_factory=list[Exemplar])
    """Successes in the order of their answers; a repeated source is listed again."""
    rewards: list[float] = field(default_factory=list[float])
    """Certified speedup of each answer in their order, 0 for a failure."""
    failures: list[Failure] = field(default_factory=list[Failure])
    """Failures that prompts may show, in the order of their answers."""
    trajectories: dict[int, Trajectory] = field(default_factory=dict[int, Trajectory])
    """Trajectories of method `refine`, by the place of their answers in a round."""
    num_failed: int = 0
    """Requests without an answer; they are asked again when the stage runs again."""
    is_exhausted: bool = False
    """True if the provider has no more answers."""


@dataclass(frozen=True)
class Asked:
    """A request, with its hunt and the island of its exemplars, or its trajectory."""

    hunt: Hunt
    request: Request
    island: int | None = None
    trajectory: Trajectory | None = None


def run_method(stage: Stage) -> Mapping[str, float | int]:
    """data/problems.parquet → data/search/METHOD.parquet."""
    section = stage.params.search
    settings = section.methods[stage.instance].provider
    provider = provider_of(stage.instance, settings)
    hunts = [Hunt(problem) for problem in _chosen(stage)]
    num_asked = 0
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        with (
            verdict_source(
                ledger, stage.params, num_policies=int(isinstance(settings, LocalSettings))
            ) as judge,
            asking(ledger, provider) as line,
            progress(
                f"answers to {stage.instance}",
                len(hunts) * section.rounds * section.answers_per_round,
            ) as advance,
        ):
            for number in range(section.rounds):
                asked = _requests(stage, provider, hunts, number)
                # all requests are answered before the first is judged: a policy that writes beside
                # the judge would be in the times, and all devices judge a round together
                answers = _answers(line, asked)
                if line.stopped is not None:
                    log.warning(
                        "%s: %s; the method ends after %d of %d rounds: `dvc repro -f -s %s`",
                        stage.name,
                        line.stopped,
                        number,
                        section.rounds,
                        stage.name,
                    )
                    break
                _judge(ledger, judge, asked, answers, number, advance)
                num_asked += section.answers_per_round
        ledger.export()
    rows = [_row(stage, hunt, num_asked) for hunt in hunts]
    frame = pl.DataFrame(rows, schema_overrides={"certified": pl.Float64})
    write_parquet(frame, DATA / "search" / f"{stage.instance}.parquet")
    return {**_marks(hunts), "num_judged": judge.num_judged, "num_reused": judge.num_reused}


def _marks(hunts: list[Hunt]) -> dict[str, float | int]:
    rewards = [reward for hunt in hunts for reward in hunt.rewards]
    bests = [max(hunt.rewards, default=0.0) for hunt in hunts]
    return {
        "num_problems": len(hunts),
        "num_answers": len(rewards),
        "num_failed_requests": sum(hunt.num_failed for hunt in hunts),
        "success": sum(reward > 0 for reward in rewards) / max(1, len(rewards)),
        "num_successful": sum(best > 0 for best in bests),
        "num_meaningful": sum(best > MEANINGFUL_SPEEDUP for best in bests),
        "mean_best_failed_as_0": fmean(bests),
    }


def _chosen(stage: Stage) -> list[Problem]:
    """Return `num_problems` problems of the split, evenly spread."""
    section = stage.params.search
    problems = admitted_problems(section.split)
    if not problems:
        raise ConfigError(
            f"{stage.name}: no {section.split} problem was admitted; choose the other "
            "search.split, or problems that have some"
        )
    return evenly_spread(problems, section.num_problems)


def _requests(stage: Stage, provider: Provider, hunts: list[Hunt], number: int) -> list[Asked]:
    """Return the requests of one round, problem by problem."""
    section = stage.params.search
    refines = section.methods[stage.instance].method is MethodKind.REFINE
    asked: list[Asked] = []
    for hunt in hunts:
        if hunt.is_exhausted:
            continue
        for place in range(section.answers_per_round):
            attempt = number * section.answers_per_round + place
            prompt, island, trajectory = (
                _refining(stage, hunt, place)
                if refines
                else _contrasting(stage, hunt, number, attempt)
            )
            request = request_to(
                provider,
                stage=stage.name,
                problem=hunt.problem,
                prompt=prompt,
                attempt=attempt,
                seed=section.seed,
            )
            asked.append(_on_island(Asked(hunt, request, island, trajectory)))
    return asked


def _contrasting(
    stage: Stage, hunt: Hunt, number: int, attempt: int
) -> tuple[Prompt, int | None, None]:
    """Return a prompt that shows successes of earlier rounds, and their island."""
    section = stage.params.search
    sampling = section.methods[stage.instance].sampling
    rng = random.Random(content_id(str(section.seed), hunt.problem.id, str(attempt)))
    choice = choose(hunt.found, section, sampling=sampling, at_round=number, rng=rng)
    prompt = contrastive_prompt(
        hunt.problem,
        choice.exemplars,
        failures=[]
        if sampling is Sampling.NONE
        else newest(hunt.failures, count=section.num_failures, island=choice.island),
        style=section.prompts,
        facts=device_facts(stage.params),
    )
    return prompt, choice.island if number else None, None


def _refining(stage: Stage, hunt: Hunt, place: int) -> tuple[Prompt, None, Trajectory]:
    """Return a prompt that shows the attempts of one trajectory, and the trajectory."""
    trajectory = hunt.trajectories.setdefault(place, Trajectory())
    prompt = refinement_prompt(
        hunt.problem,
        trajectory.attempts,
        style=stage.params.search.prompts,
        facts=device_facts(stage.params),
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


def _answers(line: Asking, asked: list[Asked]) -> dict[str, Completion]:
    """Return the provider's answer to each request, by id; some are missing if it has stopped."""
    for each in asked:
        line.ask(each.request)
    answers: dict[str, Completion] = {}
    while line.num_waiting:
        completion = line.answer()
        if completion is not None:
            answers[completion.id] = completion
    return answers


def _judge(
    ledger: Ledger,
    judge: VerdictSource,
    asked: list[Asked],
    answers: Mapping[str, Completion],
    number: int,
    advance: Advance,
) -> None:
    """Note the reward of each answer of a round, for the prompts of the next round."""
    found = [
        (each, answers[each.request.id], _found(ledger, each, answers[each.request.id]))
        for each in asked
    ]
    pairs = [(each.hunt.problem, candidate) for each, _, candidate in found if candidate]
    advance(len(asked) - len(pairs))
    verdicts = iter(judge.judge_all(pairs, advance=advance))
    for each, completion, candidate in found:
        verdict = None if candidate is None else next(verdicts)
        _note(ledger, each, completion, candidate, verdict, number)


def _found(ledger: Ledger, asked: Asked, completion: Completion) -> Candidate | None:
    """Store the candidate in an answer, and return it."""
    if completion.finish_reason == EXHAUSTED or has_failed(completion):
        return None
    place: dict[str, object] = {"island": asked.island}
    if asked.trajectory is not None:
        place |= {"turn": len(asked.trajectory.attempts) + 1, "follows": asked.trajectory.last}
    return keep_completion(ledger, completion.model_copy(update=place))


def _note(
    ledger: Ledger,
    asked: Asked,
    completion: Completion,
    candidate: Candidate | None,
    verdict: Verdict | None,
    number: int,
) -> None:
    hunt = asked.hunt
    if completion.finish_reason == EXHAUSTED:
        hunt.is_exhausted = True
        return
    if has_failed(completion):
        hunt.num_failed += 1
        return
    reward = speed_reward(verdict)
    hunt.rewards.append(reward)
    if asked.trajectory is not None:
        asked.trajectory.attempts.append(attempt_of(ledger, completion, candidate, verdict))
        asked.trajectory.last = completion.id
    if candidate is not None and verdict is not None and verdict.status in LESSONS:
        hunt.failures.append(
            Failure(
                attempt=failure_of(candidate, verdict),
                program_id=program_id(candidate.source),
                island=asked.island,
            )
        )
    if candidate is not None and reward > 0:
        hunt.found.append(
            Exemplar(
                candidate_id=candidate.id,
                source=candidate.source,
                score=reward,
                born=number,
                island=asked.island,
            )
        )


def _row(stage: Stage, hunt: Hunt, num_asked: int) -> dict[str, object]:
    problem, method = hunt.problem, stage.params.search.methods[stage.instance]
    successes = [reward for reward in hunt.rewards if reward > 0]
    return {
        "stage": stage.name,
        "method": method.method.value,
        "sampling": method.sampling.value,
        "problem_id": problem.id,
        "level": problem.level,
        "name": problem.name,
        "split": problem.split.value,
        "num_asked": num_asked,
        "num_answers": len(hunt.rewards),
        "num_successes": len(successes),
        "certified": max(successes, default=None),
    }


if __name__ == "__main__":
    main("search", run_method)
