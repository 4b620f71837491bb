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

from collections.abc import Mapping
from statistics import fmean

import polars as pl

from cudal1.errors import ConfigError
from cudal1.ledger import Ledger
from cudal1.ledger.shards import write_parquet
from cudal1.problem import Problem
from cudal1.selection.metrics import MEANINGFUL_SPEEDUP
from cudal1.services.asking import asking, provider_of
from cudal1.services.judging import device_facts, verdict_source
from cudal1.services.searching.hunt import Hunt, Plan
from cudal1.services.searching.rounds import answers, candidates, judge_round, requests
from cudal1.settings.provider_settings import LocalSettings
from tasks.products import admitted_problems, evenly_spread
from tasks.progress import progress
from tasks.stage import DATA, Stage, log, main


def run_method(stage: Stage) -> Mapping[str, float | int]:
    """data/problems.parquet → data/search/METHOD.parquet."""
    section = stage.params.search
    settings = section.methods[stage.instance].provider
    provider = provider_of(stage.instance, settings)
    hunts = [Hunt(problem) for problem in _chosen(stage)]
    plan = _plan(stage)
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
                asked = requests(
                    plan,
                    provider,
                    hunts,
                    number=number,
                    first_attempt=number * section.answers_per_round,
                )
                # all requests are answered before the first is judged: a policy that writes beside
                # the judge would be in the times, and all devices judge a round together
                given = answers(line, asked)
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
                answered = candidates(ledger, asked, given)
                judge_round(ledger, judge, answered, number=number, advance=advance)
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


def _plan(stage: Stage) -> Plan:
    section = stage.params.search
    method = section.methods[stage.instance]
    return Plan(
        stage=stage.name,
        method=method.method,
        sampling=method.sampling,
        contrast=section,
        answers_per_round=section.answers_per_round,
        prompts=section.prompts,
        seed=section.seed,
        facts=device_facts(stage.params),
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
