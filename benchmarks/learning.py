"""Do the stages learn? Success of every policy in data/policy on problems that no run has used.

python -m benchmarks.learning [--problems 40] [--samples 8] [--seed 9001]

The shipped evaluation has few answers, because it is part of every run. This one draws new held-out
problems from the generator (reserved combinations of operators) and more answers, and asks the
harness for correctness only. The intervals treat answers as independent; answers to one problem are
not, so differences are given with a bootstrap over problems, too.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import fmean

from cudal1.candidate import Candidate
from cudal1.extract import extract
from cudal1.harness import Pool, find_device
from cudal1.params import Params
from cudal1.problem import Problem, Split
from cudal1.prompt import generation_prompt
from cudal1.report.facts import wilson
from cudal1.suite import generator
from cudal1.train.policy import Sampler
from tasks.judging import admitted_problems
from tasks.progress import progress
from tasks.stage import DATA

RESULTS = Path(__file__).parent / "results"
ORDER = ("base", "sft", "rl")
"""Rounds of stage 2 come before `rl`, in the order of params.yaml."""
NUM_RESAMPLES = 2000


@dataclass(frozen=True)
class Marks:
    """One policy's share of successes, problem by problem."""

    policy: str
    by_problem: tuple[float, ...]
    num_answers: int

    @property
    def success(self) -> float:
        """Over all answers; every problem has as many."""
        return fmean(self.by_problem)


def main() -> None:
    """Measure, print a table, leave results/learning.json."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.learning", description=__doc__)
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
    found: list[Marks] = []
    for name in policies:
        found.append(examine(name, problems, params, samples=given.samples, seed=given.seed))
        print(row(found[-1], found[0], seed=given.seed), flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "learning.json").write_text(json.dumps({
        "problems": len(problems), "samples": given.samples, "seed": given.seed,
        "protocol": params.protocol.checks_only().id, "device": params.device,
        "versions": {"python": platform.python_version()}
        | {name: version(name) for name in ("torch", "transformers", "trl")},
        "measured": time.strftime("%Y-%m-%d"),
        "policies": {marks.policy: {
            "success": marks.success, "interval": wilson(
                round(marks.success * marks.num_answers), marks.num_answers
            ), "more_than_base": gain(marks, found[0], seed=given.seed),
        } for marks in found},
    }, indent=2) + "\n")  # fmt: skip


def examine(
    name: str, problems: Sequence[Problem], params: Params, *, samples: int, seed: int
) -> Marks:
    """Sample `samples` answers to each problem and have them checked."""
    sampler, policy, drawn = Sampler(DATA / "policy" / name), params.policy, params.evaluation
    asked = [problem for problem in problems for _ in range(samples)]
    answers = sampler.sample(
        [generation_prompt(problem, style=policy.prompts).as_chat() for problem in asked],
        temperature=drawn.temperature, top_p=drawn.top_p, seed=seed,
        max_new_tokens=policy.max_new_tokens, batch_size=policy.batch_size,
    )  # fmt: skip
    known: dict[str, bool] = {}
    hits: dict[str, list[bool]] = {problem.id: [] for problem in problems}
    with (
        Pool(find_device(params.device), params.protocol) as pool,
        progress(f"{name}: answers", len(asked)) as advance,
    ):
        for problem, answer in zip(asked, answers, strict=True):
            source = extract(answer.text).source
            candidate = Candidate(problem_id=problem.id, source=source or "")
            if source and candidate.id not in known:
                verdict = pool.judge(problem, candidate, timing=False).verdict
                known[candidate.id] = verdict.is_successful
            hits[problem.id].append(bool(source) and known[candidate.id])
            advance(1)
    return Marks(name, tuple(fmean(of_problem) for of_problem in hits.values()), len(asked))


def gain(marks: Marks, base: Marks, *, seed: int) -> tuple[float, float, float]:
    """How much more often it succeeds than the base policy: mean, and 95 % over problems."""
    differences = [a - b for a, b in zip(marks.by_problem, base.by_problem, strict=True)]
    rng = random.Random(seed)
    means = sorted(
        fmean(rng.choices(differences, k=len(differences))) for _ in range(NUM_RESAMPLES)
    )
    return fmean(differences), means[NUM_RESAMPLES // 40], means[-NUM_RESAMPLES // 40]


def row(marks: Marks, base: Marks, *, seed: int) -> str:
    """One line of the table."""
    more, low, high = gain(marks, base, seed=seed)
    return (
        f"{marks.policy:<6} {marks.success:6.1%} of {marks.num_answers} answers; "
        f"{more:+.1%} [{low:+.1%}, {high:+.1%}] against base"
    )


if __name__ == "__main__":
    main()
