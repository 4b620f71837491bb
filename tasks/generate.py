"""Stage `generate@PROVIDER`: ask one provider for candidates of every training problem.

One-shot prompt, up to `attempts` times a problem, until `successes` of its candidates are correct
(paper 2.2). Correctness is checked as answers arrive; timing is stage `filter`'s.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cudal1.candidate import Completion
from cudal1.ledger import Ledger
from cudal1.llm.provider import (
    EXHAUSTED,
    Provider,
    Request,
    has_failed,
    make_provider,
    request_to,
)
from cudal1.problem import Problem, Split
from cudal1.prompt import generation_prompt
from tasks.judging import Bench, admitted_problems, bench, keep_completion
from tasks.progress import progress
from tasks.stage import DATA, Stage, main

TOGETHER = 8
"""Problems asked about at a time: the judge keeps as many prepared."""


def ask_provider(stage: Stage) -> Mapping[str, float | int]:
    """data/problems.parquet → data/generate/PROVIDER.parquet."""
    section = stage.params.generate
    name = stage.instance
    provider = make_provider(name, section.providers[name])
    problems = admitted_problems(Split.TRAIN)
    asked = satisfied = 0
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        with (
            bench(ledger, stage.params) as judge,
            progress(f"problems answered by {name}", len(problems)) as advance,
        ):
            for first in range(0, len(problems), TOGETHER):
                batch = problems[first : first + TOGETHER]
                counts = _ask_until_satisfied(stage, ledger, judge, provider, batch)
                asked += sum(num_asked for num_asked, _ in counts.values())
                satisfied += sum(found >= section.successes for _, found in counts.values())
                advance(len(batch))
        ledger.export()
        ledger.write_product("generated", DATA / "generate" / f"{name}.parquet", stage=stage.name)
    return {
        "num_problems": len(problems),
        "num_asked": asked,
        "num_satisfied": satisfied,
        "num_checked": judge.num_judged,
    }


def _ask_until_satisfied(
    stage: Stage, ledger: Ledger, judge: Bench, provider: Provider, problems: Sequence[Problem]
) -> dict[str, tuple[int, int]]:
    """Attempts and successes of each problem, once it has enough of either."""
    section = stage.params.generate
    unsatisfied = {problem.id: problem for problem in problems}
    counts: dict[str, tuple[int, int]] = dict.fromkeys(unsatisfied, (0, 0))
    for attempt in range(section.attempts):
        requests = [
            request_to(
                provider, stage=stage.name, problem=problem, attempt=attempt,
                prompt=generation_prompt(problem, style=section.prompts), seed=section.seed,
            )
            for problem in unsatisfied.values()
        ]  # fmt: skip
        for completion in _answers(ledger, provider, requests):
            problem = unsatisfied[completion.problem_id]
            if completion.finish_reason == EXHAUSTED:
                del unsatisfied[problem.id]
                continue
            candidate = keep_completion(ledger, completion)
            success = candidate is not None and judge.check(problem, candidate).is_successful
            asked, found = counts[problem.id]
            counts[problem.id] = asked + 1, found + success
            if counts[problem.id][1] >= section.successes:
                del unsatisfied[problem.id]
    return counts


def _answers(ledger: Ledger, provider: Provider, requests: Sequence[Request]) -> list[Completion]:
    """Answers to the requests; what was answered before is not asked, or paid for, again."""
    known = {request.id: ledger.completion(request.id) for request in requests}
    fresh = [r for r in requests if (k := known[r.id]) is None or has_failed(k)]
    answers = [k for k in known.values() if k is not None and not has_failed(k)]
    for completion in provider.complete(fresh):
        keep_completion(ledger, completion)
        answers.append(completion)
    return answers


if __name__ == "__main__":
    main("generate", ask_provider)
