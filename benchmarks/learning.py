"""Measure whether the stages learn: examine all policies in data/policy on unused problems.

python -m benchmarks.learning [--problems 40] [--samples 8] [--seed 9001]

The shipped evaluation has few answers, because it is part of every run. This benchmark draws new
held-out problems from the generator (reserved combinations of operators) and more answers, and has
them judged in full. Answers to one problem are not independent, so intervals come from a bootstrap
over problems.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.arguments import Parser
from benchmarks.machine import cpu_name, versions
from cudal1.candidate import Candidate
from cudal1.extract.extract import extract
from cudal1.harness.device.device import find_device
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import Problem, Split
from cudal1.prompts.prompt import generation_prompt
from cudal1.selection.reward import speed_reward
from cudal1.services.judging import device_facts
from cudal1.settings.params import Params
from cudal1.suite import generator
from cudal1.train.policy import Sampler
from tasks.products import admitted_problems
from tasks.progress import progress
from tasks.stage import DATA

RESULTS = Path(__file__).parent / "results"
ORDER = ("base", "sft", "rl")
"""Stages of policies in order. Rounds of stage 2 come before `rl`, in the order of params.yaml."""
NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Marks:
    """The rewards of one policy's answers to each problem."""

    policy: str
    rewards: tuple[tuple[float, ...], ...]

    @property
    def success(self) -> tuple[float, ...]:
        """Return the share of successes, problem by problem; every problem has as many answers."""
        return tuple(fmean(reward > 0 for reward in mine) for mine in self.rewards)

    @property
    def reward(self) -> tuple[float, ...]:
        """Return the mean reward, problem by problem."""
        return tuple(fmean(mine) for mine in self.rewards)


def main() -> None:
    """Measure, print a table, and write results/learning.json."""
    parser = Parser(prog="python -m benchmarks.learning", description=__doc__)
    parser.add_argument("--problems", type=int, default=40)
    parser.add_argument("--samples", type=int, default=8, help="answers to each problem")
    parser.add_argument("--seed", type=int, default=9001, help="of problems and answers")
    given = parser.parse_args()
    params = Params.load(Path("params.yaml"))
    used = {problem.id for problem in admitted_problems()}
    drawn = generator.problems(
        given.problems, seed=given.seed, device_class=params.device, split=Split.HELDOUT
    )
    problems = [problem for problem in drawn if problem.id not in used]
    policies = [*ORDER[:2], *params.selfsup.rounds, ORDER[2]]
    device = find_device(params.device)
    found: list[Marks] = []
    known: dict[str, float] = {}
    with Pool(device, params.protocol) as pool:
        for name in policies:
            found.append(
                examine(name, problems, params, pool, known, samples=given.samples, seed=given.seed)
            )
            print(row(found[-1], found[0], seed=given.seed), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "learning.json").write_text(
        json.dumps(
            {
                "problems": len(problems),
                "samples": given.samples,
                "seed": given.seed,
                "protocol": params.protocol.id,
                "device": device.kind,
                "cpu": cpu_name(),
                "versions": versions("torch", "transformers", "trl"),
                "measured": time.strftime("%Y-%m-%d"),
                "policies": {
                    marks.policy: {
                        "success": fmean(marks.success),
                        "success_more_than_base": gain(
                            marks.success, found[0].success, seed=given.seed
                        ),
                        "reward": fmean(marks.reward),
                        "reward_more_than_base": gain(
                            marks.reward, found[0].reward, seed=given.seed
                        ),
                        "mean_best_reward": fmean(max(mine) for mine in marks.rewards),
                        "rewards": marks.rewards,
                    }
                    for marks in found
                },
            },
            indent=2,
        )
        + "\n"
    )


def examine(
    name: str,
    problems: Sequence[Problem],
    params: Params,
    pool: Pool,
    known: dict[str, float],
    *,
    samples: int,
    seed: int,
) -> Marks:
    """Sample `samples` answers to each problem and judge them; equal sources are judged once."""
    sampler, policy, drawn = Sampler(DATA / "policy" / name), params.policy, params.evaluation
    facts = device_facts(params)
    asked = [problem for problem in problems for _ in range(samples)]
    answers = sampler.sample(
        [
            generation_prompt(problem, style=policy.prompts, facts=facts).as_chat()
            for problem in asked
        ],
        temperature=drawn.temperature,
        top_p=drawn.top_p,
        seed=seed,
        max_new_tokens=policy.max_new_tokens,
        batch_size=policy.batch_size,
    )
    rewards: dict[str, list[float]] = {problem.id: [] for problem in problems}
    with progress(f"{name}: answers", len(asked)) as advance:
        for problem, answer in zip(asked, answers, strict=True):
            source = extract(answer.text).source
            candidate = Candidate(problem_id=problem.id, source=source or "")
            if source and candidate.id not in known:
                known[candidate.id] = speed_reward(pool.judge(problem, candidate).verdict)
            rewards[problem.id].append(known[candidate.id] if source else 0.0)
            advance(1)
    return Marks(name, tuple(tuple(mine) for mine in rewards.values()))


def gain(mine: Sequence[float], base: Sequence[float], *, seed: int) -> tuple[float, float, float]:
    """Return the gain over the base policy: mean, and 95 % by a bootstrap over problems."""
    differences = [a - b for a, b in zip(mine, base, strict=True)]
    rng = random.Random(seed)
    means = sorted(
        fmean(rng.choices(differences, k=len(differences))) for _ in range(NUM_RESAMPLES)
    )
    return fmean(differences), means[NUM_RESAMPLES // 40], means[-NUM_RESAMPLES // 40]


def row(marks: Marks, base: Marks, *, seed: int) -> str:
    """Return one line of the table."""
    more, low, high = gain(marks.success, base.success, seed=seed)
    reward, least, most = gain(marks.reward, base.reward, seed=seed)
    return (
        f"{marks.policy:<6} success {fmean(marks.success):6.1%}, {more:+.1%} "
        f"[{low:+.1%}, {high:+.1%}] against base; reward {fmean(marks.reward):.2f}, {reward:+.2f} "
        f"[{least:+.2f}, {most:+.2f}]"
    )


if __name__ == "__main__":
    main()
