"""Stage `lessons` of a night: sample the champion anew, and gather the ledger's best successes.

The champion answers training problems, so that the ledger gains something even when no other stage
has run. Lessons are the best successes of each training problem, from any author, under this run's
protocol and on its kind of device. The history is all of its successes, which prompts of stage
`challenger` may show.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from cudal1.ledger import Ledger
from cudal1.problem import Split
from cudal1.selection.reward import speed_reward
from cudal1.services.judging import VerdictSource, verdict_source
from cudal1.train.policy import Sampler
from tasks.examine import Answer, Sampling, fitting_problems, sample_and_judge
from tasks.night.night import FOLDER, Night, current_night
from tasks.products import admitted_problems, product
from tasks.stage import DATA, Stage, main

LESSONS = FOLDER / "lessons.parquet"
HISTORY = FOLDER / "history.parquet"


def gather(stage: Stage) -> Mapping[str, float | int]:
    """Write the night's lessons.parquet and history.parquet, from the champion and the ledger."""
    night = current_night()
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        with verdict_source(ledger, stage.params) as judge:
            answers = _own_answers(stage, ledger, judge, night)
        ledger.export()
        of_this_run = {
            "problem_ids": [problem.id for problem in admitted_problems(Split.TRAIN)],
            "device_kind": judge.device.kind,
            "protocol_id": judge.protocol.id,
        }
        ledger.write_product("history", HISTORY, **of_this_run)
        ledger.write_product(
            "lessons",
            LESSONS,
            since=night.champion_made_at,
            count=stage.params.lessons.keep,
            **of_this_run,
        )
    chosen = product(LESSONS)
    return {
        "night": night.number,
        "sampled_num_answers": len(answers),
        "sampled_mean_reward": fmean(speed_reward(answer.verdict) for answer in answers),
        "num_lessons": len(chosen),
        "num_new": num_new(chosen),
    }


def num_new(lessons: Sequence[Mapping[str, object]]) -> int:
    """Return the number of lessons that are newer than the champion."""
    return sum(bool(row["is_new"]) for row in lessons)


def _own_answers(stage: Stage, ledger: Ledger, judge: VerdictSource, night: Night) -> list[Answer]:
    section, policy = stage.params.lessons, stage.params.policy
    sampler = Sampler(DATA / "policy" / "champion")
    problems = fitting_problems(stage, sampler.num_tokens, Split.TRAIN, count=section.num_problems)
    sampling = Sampling(
        num_samples=section.num_samples,
        turns=1,
        temperature=section.temperature,
        top_p=section.top_p,
        seed=section.seed + night.number,
        max_new_tokens=policy.max_new_tokens,
        batch_size=policy.batch_size,
    )
    return sample_and_judge(
        stage, ledger, judge, sampler, problems, sampling, "answers to learn from", timing=True
    )


if __name__ == "__main__":
    main("lessons", gather)
