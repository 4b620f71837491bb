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
from tasks.stage import DATA, Stage, main, required_item


def ask_provider(stage: Stage) -> Mapping[str, float | int]:
    """data/problems.parquet → data/generate/PROVIDER.parquet."""
    section = stage.params.generate
    name = required_item(stage, section.providers)
    provider = make_provider(name, section.providers[name])
    problems = admitted_problems(Split.TRAIN)
    num_asked = num_successful = 0
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name)
        with (
            bench(ledger, stage.params, timing=False) as judge,
            progress(f"problems answered by {name}", len(problems)) as advance,
        ):
            open_problems = {problem.id: (problem, 0) for problem in problems}
            for attempt in range(section.attempts):
                requests = [
                    request_to(
                        provider, stage=stage.name, problem=problem, attempt=attempt,
                        prompt=generation_prompt(problem, style=section.prompts),
                        seed=section.seed,
                    )
                    for problem, _ in open_problems.values()
                ]  # fmt: skip
                if not requests:
                    break
                for completion in _answers(ledger, provider, requests):
                    problem, successes = open_problems[completion.problem_id]
                    num_asked += 1
                    if completion.finish_reason == EXHAUSTED:
                        del open_problems[problem.id]
                        advance(1)
                        continue
                    successes += _is_success(ledger, judge, problem, completion)
                    open_problems[problem.id] = (problem, successes)
                    if successes >= section.successes:
                        num_successful += 1
                        del open_problems[problem.id]
                        advance(1)
            advance(len(open_problems))
        ledger.export()
        ledger.write_product("generated", DATA / "generate" / f"{name}.parquet", stage=stage.name)
    return {
        "num_problems": len(problems),
        "num_asked": num_asked,
        "num_satisfied": num_successful,
        "num_checked": judge.num_judged,
    }


def _answers(ledger: Ledger, provider: Provider, requests: Sequence[Request]) -> list[Completion]:
    """Answers to the requests; what was answered before is not asked, or paid for, again."""
    known = {request.id: ledger.completion(request.id) for request in requests}
    fresh = [r for r in requests if (k := known[r.id]) is None or has_failed(k)]
    answers = [k for k in known.values() if k is not None and not has_failed(k)]
    for completion in provider.complete(fresh):
        keep_completion(ledger, completion)
        answers.append(completion)
    return answers


def _is_success(
    ledger: Ledger, judge: Bench, problem: Problem, completion: Completion
) -> bool:
    candidate = keep_completion(ledger, completion)
    return candidate is not None and judge.verdict(problem, candidate).is_successful


if __name__ == "__main__":
    main("generate", ask_provider)
