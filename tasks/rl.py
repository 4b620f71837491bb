"""Stage `rl` (stage 3): contrastive reinforcement learning.

GRPO (equations 4 and 5) trains the policy in a world that makes its prompts and rewards its answers
(`tasks.learning.world`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

from cudal1.ledger import Ledger
from cudal1.problem import Problem, Split
from cudal1.services.judging import VerdictSource, verdict_source
from cudal1.tracking.runs import Run
from cudal1.train.grpo import STATE_FILE, GrpoSettings, train_grpo
from cudal1.train.policy import token_counter
from tasks.examine import examine, fitting_problems, unprefixed
from tasks.learning.checkpoints import keep_best, validation_problems
from tasks.learning.history import History
from tasks.learning.training import Steps, refuse_unready, refuse_untrainable, tracked, training
from tasks.learning.world import ContrastiveWorld
from tasks.stage import DATA, PIPELINE, Stage, main

FILTERED = History(stages=("filter",))
"""The history of stage 3: the candidates that stage `filter` has judged."""


def train(stage: Stage) -> Mapping[str, float | int]:
    """Train data/policy/INIT into data/policy/rl, and examine it on held-out problems."""
    return reinforce(stage, policy="rl", history=FILTERED)


def reinforce(
    stage: Stage, *, policy: str, history: History, whole: str = PIPELINE, registers: bool = True
) -> Mapping[str, float | int]:
    """Train data/policy/INIT by the settings of section `rl`, and examine the best checkpoint.

    Args:
        stage: the stage that trains; rows in the ledger have its name.
        policy: name of the folder of the result, in data/policy.
        history: the first exemplars.
        whole: the run in MLflow that the stage's is drawn inside of.
        registers: whether the result may become the champion, as one of the pipeline's policies.
    """
    section = stage.params.rl
    refuse_unready(stage, vllm_server=section.vllm_server)
    init, out = DATA / "policy" / section.init, DATA / "policy" / policy
    key = stage.name if stage.item is None else f"ablation.rows.{stage.item}"
    refuse_untrainable(stage, init, {key: section})
    num_tokens = token_counter(init)
    problems = fitting_problems(stage, num_tokens, Split.TRAIN, count=section.num_problems)
    others = validation_problems(stage, num_tokens, trained=problems)
    with Ledger.open(DATA) as ledger:
        ledger.begin(stage.name, run=stage.run)
        finish = partial(_finish, stage, ledger, init=init, out=out, others=others)
        num_policies = stage.params.scale.processes
        with tracked(
            stage,
            ledger,
            section="rl",
            policy=policy,
            whole=whole,
            init=section.init,
            registers=registers,
        ) as run:
            with verdict_source(ledger, stage.params, num_policies=num_policies) as judge:
                judge.get_ready()
                with training(
                    stage, ledger, run, steps=section.steps, last_file=STATE_FILE
                ) as steps:
                    world = ContrastiveWorld(
                        stage,
                        ledger,
                        judge,
                        problems,
                        steps,
                        history=history,
                        num_tokens=num_tokens,
                    )
                    _train(stage, init, out, world, steps)
                counts = {"num_judged": judge.num_judged, "num_reused": judge.num_reused}
                marks = finish(run, judge) if num_policies == 1 else None
            if marks is None:  # a policy that writes on one GPU leaves the others to judges
                with verdict_source(ledger, stage.params) as judge:
                    marks = finish(run, judge)
            means = _mean_rewards(ledger, stage, num_problems=len(problems))
    return {**means, **counts, **marks}


def _finish(
    stage: Stage,
    ledger: Ledger,
    run: Run,
    judge: VerdictSource,
    *,
    init: Path,
    out: Path,
    others: Sequence[Problem],
) -> Mapping[str, float | int]:
    """Keep the best checkpoint in `out`, and examine it; return the marks."""
    kept = keep_best(stage, ledger, judge, run, init=init, out=out, problems=others)
    marks = examine(stage, ledger, out, judge)
    run.mark(unprefixed(marks))
    return {**kept, **marks}


def _train(stage: Stage, init: Path, out: Path, world: ContrastiveWorld, steps: Steps) -> None:
    section = stage.params.rl
    train_grpo(
        init,
        out,
        world.problem_ids,
        world,
        GrpoSettings(
            steps=section.steps,
            prompts_per_step=section.prompts_per_step,
            group_size=section.group_size,
            learning_rate=section.learning_rate,
            beta=section.beta,
            epsilon=section.epsilon,
            advantage=section.advantage,
            entropy_coef=section.entropy_coef,
            entropy_target=section.entropy_target,
            resamples=section.resamples,
            turns=section.turns,
            mask_truncated=section.mask_truncated,
            updates_per_batch=section.updates_per_batch,
            temperature=section.temperature,
            top_p=section.top_p,
            max_new_tokens=stage.params.policy.max_new_tokens,
            checkpoint_every=section.checkpoint_every,
            keeps_checkpoints=section.validation_problems > 0,
            seed=section.seed,
            scale=stage.params.scale,
            vllm_server=section.vllm_server,
        ),
        work=stage.work,
        on_log=steps.log,
    )
    world.end_step()


def _mean_rewards(ledger: Ledger, stage: Stage, *, num_problems: int) -> dict[str, float]:
    """Return mean raw rewards of the first and last epoch, which have the same problems."""
    rows = ledger.query("steps", stage=stage.name).to_dicts()
    rewards = [row["value"] for row in rows if row["name"] == "reward_raw"]
    epoch = max(1, num_problems // stage.params.rl.prompts_per_step)
    return {
        "reward_first_epoch": fmean(rewards[:epoch]),
        "reward_last_epoch": fmean(rewards[-epoch:]),
    }


if __name__ == "__main__":
    main("rl", train)
