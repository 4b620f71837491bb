"""GRPO steps, ours and TRL's own, timed in parts; for `benchmarks.training_speed`.

Same policy, problems, prompts, settings of the objective and pool of the harness. TRL's trainer
runs plainly: transformers' `generate`, everything else at its defaults, and a judge that is asked
for one answer after another. Ours asks only for what it has not judged in the run.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cudal1.candidate import Candidate
from cudal1.extract import extract
from cudal1.harness import Pool
from cudal1.problem import Problem
from cudal1.prompt import DeviceFacts, generation_prompt
from cudal1.reward import speed_reward
from cudal1.train.checkpoints import log_callback, quiet, without_printing
from cudal1.train.grpo import train_grpo

MAX_NEW_TOKENS = 256


@dataclass(frozen=True)
class Size:
    """How much is done."""

    steps: int
    """Of each run; the first is not counted."""
    prompts: int
    """Of each step."""
    group: int
    problems: int


@dataclass(frozen=True)
class Step:
    """Where the seconds of one step went."""

    wall_s: float
    generate_s: float
    judge_s: float
    """Build included: it is part of a verdict."""
    num_answers: int
    num_judged: int

    @property
    def train_s(self) -> float:
        """All the rest: reference, gradient, update."""
        return self.wall_s - self.generate_s - self.judge_s


class World:
    """Problems and their verdicts; `cudal1.train.grpo.Environment`.

    Args:
        reuses: whether a source that was judged is judged again.
    """

    judges_meanwhile = False

    def __init__(
        self, pool: Pool, problems: Sequence[Problem], facts: DeviceFacts, *, reuses: bool
    ) -> None:
        self._pool = pool
        self._problems = {problem.id: problem for problem in problems}
        self._facts = facts
        self._reuses = reuses
        self._known: dict[str, float] = {}
        self.judge_s = 0.0
        self.generate_s = 0.0
        self.num_answers = 0
        self.num_judged = 0
        self.steps: list[Step] = []
        self._last = time.perf_counter()

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """The plain one."""
        problem = self._problems[problem_id]
        return generation_prompt(problem, style="compact", facts=self._facts).as_chat()

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Nothing: the judge's device is the policy's."""

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Certified speedups."""
        started = time.perf_counter()
        rewards: list[float | None] = []
        for problem_id, text in zip(problem_ids, texts, strict=True):
            rewards.append(self._reward(self._problems[problem_id], text))
        self.judge_s += time.perf_counter() - started
        self.num_answers += len(texts)
        return rewards

    def _reward(self, problem: Problem, text: str) -> float:
        source = extract(text).source
        if source is None:
            return 0.0
        candidate = Candidate(problem_id=problem.id, source=source)
        if candidate.id in self._known and self._reuses:
            return self._known[candidate.id]
        self.num_judged += 1
        reward = speed_reward(self._pool.judge(problem, candidate).verdict)
        self._known[candidate.id] = reward
        return reward

    def on_log(self, step: int, values: Mapping[str, float]) -> None:
        """A step ended."""
        if "loss" not in values:
            return
        now = time.perf_counter()
        self.steps.append(Step(
            wall_s=now - self._last, judge_s=self.judge_s,
            generate_s=values.get("seconds_generate", self.generate_s),
            num_answers=self.num_answers, num_judged=self.num_judged,
        ))  # fmt: skip
        self._last, self.judge_s, self.generate_s = now, 0.0, 0.0
        self.num_answers = self.num_judged = 0

    def state(self) -> dict[str, Any]:
        """Nothing is resumed."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Nothing is resumed."""


OBJECTIVE = {
    "learning_rate": 1e-4, "beta": 0.02, "epsilon": 0.2, "temperature": 1.0, "top_p": 1.0,
    "seed": 5,
}  # fmt: skip


def our_steps(policy: Path, world: World, ids: Sequence[str], size: Size, folder: Path) -> None:
    """A run of `train_grpo`; its steps are in `world`."""
    train_grpo(
        policy, folder / "out", ids, world, work=folder / "work", steps=size.steps,
        prompts_per_step=size.prompts, group_size=size.group, updates_per_batch=1,
        max_new_tokens=MAX_NEW_TOKENS, checkpoint_every=10**6, on_log=world.on_log, **OBJECTIVE,
    )  # fmt: skip


def trl_steps(policy: Path, world: World, ids: Sequence[str], size: Size, folder: Path) -> None:
    """A run of GRPOTrainer as it comes; its steps are in `world`."""
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    quiet()
    machine = {} if torch.cuda.is_available() else {"bf16": False, "use_cpu": True}
    arguments = GRPOConfig(
        output_dir=str(folder), max_steps=size.steps, num_generations=size.group,
        per_device_train_batch_size=size.prompts * size.group, loss_type="grpo",
        use_bias_correction_kl=False, max_completion_length=MAX_NEW_TOKENS,
        lr_scheduler_type="constant", remove_unused_columns=False, logging_steps=1,
        report_to="none", save_strategy="no", disable_tqdm=True, **machine, **OBJECTIVE,
    )  # fmt: skip
    rows = [{"prompt": world.build_prompt(name, 0), "problem_id": name} for name in ids]

    def reward(completions: Any, problem_id: list[str], **_: Any) -> list[float | None]:
        return world.score(problem_id, [completion[0]["content"] for completion in completions], 0)

    trainer: Any = GRPOTrainer(
        model=str(policy), reward_funcs=reward, args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(policy),
        callbacks=[log_callback(world.on_log)],
    )  # fmt: skip
    generate = trainer.model.generate

    def timed(*arguments: Any, **more: Any) -> Any:
        started = time.perf_counter()
        made = generate(*arguments, **more)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        world.generate_s += time.perf_counter() - started
        return made

    trainer.model.generate = timed
    without_printing(trainer).train()


def as_json(step: Step) -> dict[str, float]:
    """With the seconds that follow from the others."""
    return {**asdict(step), "train_s": step.train_s}
