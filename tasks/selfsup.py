"""Stage `selfsup@ROUND` (stage 2): sample, judge, learn from the successes; speed is ignored.

Reward 1 or 0 and no baseline: failures give no gradient (paper 2.3), so a round is supervised
training on the policy's own successful answers, each distinct one once.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from cudal1.errors import TrainingError
from cudal1.ledger import Ledger
from cudal1.problem import Split
from cudal1.selection.reward import success_reward
from cudal1.services.judging import verdict_source
from cudal1.train.policy import Sampler
from cudal1.train.sft import Pair, SftSettings, train_sft
from tasks.examine import Answer, Sampling, examine, fitting_problems, sample_and_judge, unprefixed
from tasks.learning.reading import is_copy, with_lessons
from tasks.learning.training import pair, refuse_unready, refuse_untrainable, tracked, training
from tasks.stage import DATA, Stage, main

TRAINING_KNOBS = (
    "steps",
    "batch_size",
    "loss",
    "learning_rate",
    "warmup_steps",
    "max_tokens",
    "checkpoint_every",
    "seed",
)


def teach_itself(stage: Stage) -> Mapping[str, float | int]:
    """Train data/policy/INIT into data/policy/ROUND, and examine it on held-out problems."""
    refuse_unready(stage)
    section = stage.params.selfsup
    name = stage.instance
    init = DATA / "policy" / section.rounds[name].init
    refuse_untrainable(stage, init, stage.params.reinforced())
    out = DATA / "policy" / name
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        answers = _own_answers(stage, ledger, Sampler(init))
        pairs = _pairs(stage, answers)
        mixed = with_lessons(pairs, section.reading, params=stage.params, seed=_seed(stage))
        knobs = {knob: getattr(section, knob) for knob in TRAINING_KNOBS}
        with tracked(stage, ledger, init=init.name) as run:
            with training(stage, ledger, run, steps=section.steps) as steps:
                num_long = train_sft(
                    init,
                    out,
                    mixed,
                    SftSettings(scale=stage.params.scale, **knobs),
                    work=stage.work,
                    on_log=steps.log,
                )
            marks = examine(stage, ledger, out)
            run.mark(unprefixed(marks))
    return {
        "sampled_success": fmean(success_reward(answer.verdict) for answer in answers),
        "sampled_num_answers": len(answers),
        "num_pairs": len(pairs),
        "num_lessons": len(mixed) - len(pairs),
        "num_too_long": num_long,
        **marks,
    }


def _own_answers(stage: Stage, ledger: Ledger, sampler: Sampler) -> list[Answer]:
    section, policy = stage.params.selfsup, stage.params.policy
    problems = fitting_problems(stage, sampler.num_tokens, Split.TRAIN, count=section.num_problems)
    sampling = Sampling(
        num_samples=section.num_samples,
        turns=1,
        temperature=section.temperature,
        top_p=section.top_p,
        seed=section.seed,
        max_new_tokens=policy.max_new_tokens,
        batch_size=policy.batch_size,
    )
    with verdict_source(ledger, stage.params) as judge:
        return sample_and_judge(
            stage, ledger, judge, sampler, problems, sampling, "answers to learn from", timing=False
        )


def _seed(stage: Stage) -> int:
    """Return a seed by which each round has lessons of its own."""
    return stage.params.selfsup.seed + 1 + list(stage.params.selfsup.rounds).index(stage.instance)


def _pairs(stage: Stage, answers: list[Answer]) -> list[Pair]:
    """Return each distinct success once; the reference itself teaches nothing."""
    own = {
        answer.candidate.id: pair(stage.params, answer.problem, answer.candidate.source)
        for answer in answers
        if answer.candidate is not None
        and success_reward(answer.verdict) > 0
        and not is_copy(answer.candidate.source, answer.problem)
    }
    if not own:
        raise TrainingError(
            f"{stage.name}: none of the policy's {len(answers)} answers succeeded with more than a "
            "copy of its reference, so there is nothing to learn from: raise selfsup.num_samples "
            "or selfsup.num_problems, or train stage 1 longer"
        )
    return list(own.values())


if __name__ == "__main__":
    main("selfsup", teach_itself)
