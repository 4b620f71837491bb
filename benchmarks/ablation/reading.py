"""Test whether a policy reads the scores in its prompt: by its weights alone, without a judge.

python -m benchmarks.ablation.reading --plan gpu --policy cudal1/train/embedded

Two right variants of each validation problem are shown, with made-up scores, then the same two with
their scores exchanged. Where the variants differ, an answer has the better one's form, the worse
one's, or another. A policy that does not read scores answers alike in both cases. Then stage 3 has
nothing to build on, and prompts with exemplars are no more than longer prompts.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.ablation import plan as plans
from benchmarks.ablation import problems as drawing
from benchmarks.ablation.exam import Examinee
from benchmarks.ablation.plan import Group, Plan
from benchmarks.arguments import Parser
from benchmarks.experiment.roofline import normal, right_variants
from cudal1.extract.extract import extract
from cudal1.problem import Problem
from cudal1.prompts.prompt import PromptStyle, contrastive_prompt
from cudal1.selection.exemplar import Exemplar
from cudal1.teachers import compose

SCORES = (1.1, 2.9)
Choices = tuple[int | None, ...]


@dataclass(frozen=True)
class Asked:
    """Two variants of a problem: the one shown as worse, and the one shown as better."""

    problem: Problem
    variants: dict[str, Choices]
    worse: Choices
    better: Choices


def main() -> None:
    """Print a line for each order of the two."""
    parser = Parser(prog="python -m benchmarks.ablation.reading")
    parser.add_argument("--plan", default="gpu")
    parser.add_argument("--policy", type=Path, required=True)
    parser.add_argument("--answers", type=int, default=8, help="to each prompt")
    given = parser.parse_args()
    from cudal1.train.policy import Sampler

    plan = plans.load(given.plan)
    problems = drawing.draw(plan.problems, plan.device)[Group.VALIDATION]
    for title, asked in zip(("shown", "exchanged"), questions(problems), strict=True):
        print(f"{title:<10} {line(look(Sampler(given.policy), plan, asked, given.answers))}")


def questions(problems: Sequence[Problem]) -> tuple[list[Asked], list[Asked]]:
    """Return two variants of each problem that differ in at least two places, in both orders."""
    found: list[Asked] = []
    for problem in problems:
        variants, rng = right_variants(problem), random.Random(problem.id)
        pairs = [rng.sample(list(variants.values()), 2) for _ in range(200)]
        worse, better = next(p for p in pairs if sum(map(_differ, *p)) >= min(2, len(p[0])))
        found.append(Asked(problem, variants, worse, better))
    return found, [Asked(a.problem, a.variants, a.better, a.worse) for a in found]


def look(examinee: Examinee, plan: Plan, asked: Sequence[Asked], num_answers: int) -> Counter[str]:
    """Count answers, right answers, and forms at places where the two variants differ."""
    each = list(itertools.chain.from_iterable([one] * num_answers for one in asked))
    answers = examinee.sample(
        [_chat(one) for one in each],
        temperature=1.0,
        top_p=1.0,
        seed=1,
        max_new_tokens=plan.max_new_tokens,
        batch_size=plan.batch_size,
    )
    counts: Counter[str] = Counter(answers=len(each))
    for one, answer in zip(each, answers, strict=True):
        made = one.variants.get(normal(extract(answer.text).source or ""))
        if made is None:
            continue
        counts["right"] += 1
        counts["copies"] += made in (one.worse, one.better)
        for form, worse, better in zip(made, one.worse, one.better, strict=True):
            if worse != better:
                counts["places"] += 1
                counts["better"] += form == better
                counts["worse"] += form == worse
    return counts


def line(counts: Counter[str]) -> str:
    """Return the counts as shares, for people."""
    places, right = max(1, counts["places"]), max(1, counts["right"])
    return (
        f"right {counts['right'] / counts['answers']:.2f}, of these copies "
        f"{counts['copies'] / right:.2f}; where the two differ: as the better "
        f"{counts['better'] / places:.2f}, as the worse {counts['worse'] / places:.2f}"
    )


def _chat(one: Asked) -> list[dict[str, str]]:
    shown = [
        Exemplar(candidate_id=str(n), source=compose(one.problem.source, made).source, score=score)
        for n, (made, score) in enumerate(zip((one.worse, one.better), SCORES, strict=True))
    ]
    return contrastive_prompt(one.problem, shown, style=PromptStyle.COMPACT).as_chat()


def _differ(one: int | None, other: int | None) -> bool:
    return one != other


if __name__ == "__main__":
    main()
