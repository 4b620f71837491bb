"""Keep the checkpoint of stage `rl` that answers best on training problems it did not learn on.

Held-out problems choose nothing: the marks on them are compared between methods. A checkpoint is
asked plainly, as in an examination. Its answers are rows of the stage under a provider of their
own, so tables of what the training sampled leave them out.
"""

from __future__ import annotations

import gc
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from cudal1.errors import ConfigError
from cudal1.ledger import Ledger
from cudal1.problem import Problem, Split
from cudal1.services.judging import VerdictSource
from cudal1.tracking.runs import Run
from cudal1.train.grpo import kept_policies
from cudal1.train.policy import Chat, Sampler
from cudal1.train.scaling import plain_policy
from tasks.examine import Sampling, fitting_problems, marks_of, sample_and_judge
from tasks.stage import Stage

log = logging.getLogger("cudal1")

CHECKPOINTS = "checkpoints"
"""The provider of their answers in the ledger."""


def validation_problems(
    stage: Stage, num_tokens: Callable[[Chat], int], *, trained: Sequence[Problem]
) -> list[Problem]:
    """Return the problems that choose a checkpoint, none if the last one is kept.

    Args:
        stage: the stage that trains.
        num_tokens: returns the policy's length of a prompt.
        trained: the problems that it trains on.

    Raises:
        ConfigError: training takes all problems.
    """
    section = stage.params.rl
    if section.validation_problems == 0:
        return []
    try:
        return fitting_problems(
            stage,
            num_tokens,
            Split.TRAIN,
            count=section.validation_problems,
            without={problem.id for problem in trained},
        )
    except ConfigError as error:
        raise ConfigError(
            f"{stage.name}: training takes all {len(trained)} problems, and none is left to choose "
            "a checkpoint; lower rl.num_problems, or set rl.validation_problems to 0"
        ) from error


def keep_best(
    stage: Stage,
    ledger: Ledger,
    judge: VerdictSource,
    run: Run,
    *,
    init: Path,
    out: Path,
    problems: Sequence[Problem],
    load: Callable[[Path], Sampler] = Sampler,
) -> dict[str, float | int]:
    """Put the checkpoint with the best mean reward on `problems` into `out`, the last of equals.

    Without problems `out` stays as it is: the last step's weights.

    Returns:
        the kept step and its mark, for the stage's numbers.
    """
    kept = kept_policies(stage.work) if problems else {}
    if not kept:
        return {}
    marks: dict[int, Mapping[str, float]] = {}
    for step, folder in kept.items():
        policy = stage.work / "checkpoint"
        plain_policy(init, folder, policy)
        marks[step] = _marks(stage, ledger, judge, load(policy), problems, step)
        gc.collect()  # the next policy and the judges want the memory of the one that has left
        ledger.add_steps(step, {f"validation_{name}": mark for name, mark in marks[step].items()})
    best = max(marks, key=lambda step: (marks[step]["mean_reward"], step))
    plain_policy(init, kept[best], out)
    run.mark_checkpoints(marks)
    last = max(marks)
    log.info(
        "%s: keeps step %d, with a mean reward of %.2f on %d validation problems (step %d: %.2f)",
        stage.name,
        best,
        marks[best]["mean_reward"],
        len(problems),
        last,
        marks[last]["mean_reward"],
    )
    shutil.rmtree(stage.work / "checkpoint")
    return {"kept_step": best, "validation_reward": marks[best]["mean_reward"]}


def _marks(
    stage: Stage,
    ledger: Ledger,
    judge: VerdictSource,
    policy: Sampler,
    problems: Sequence[Problem],
    step: int,
) -> Mapping[str, float]:
    """Return a checkpoint's share of successes and mean reward."""
    params = stage.params
    sampling = Sampling(
        num_samples=params.rl.validation_samples,
        turns=1,
        temperature=params.evaluation.temperature,
        top_p=params.evaluation.top_p,
        seed=params.rl.seed,
        max_new_tokens=params.policy.max_new_tokens,
        batch_size=params.policy.batch_size,
        author=CHECKPOINTS,
    )
    answers = sample_and_judge(
        stage, ledger, judge, policy, problems, sampling, f"answers of step {step}", timing=True
    )
    found = marks_of(answers)
    return {"success": found["success"], "mean_reward": found["mean_reward"]}
