"""Time GRPO steps, ours and TRL's own, in parts, for `benchmarks.training.training_speed`.

Both have the same policy, problems, prompts, settings of the objective and pool of the harness.
TRL's trainer runs plainly: transformers' `generate`, everything else at its defaults, and a judge
that is asked for one answer after another. Ours asks only for what it has not judged in the run.
The policy is the embedded one after supervised training on teachers' answers, as in stage 1: a
policy that RL begins with repeats itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import ONE_PROCESS, note
from cudal1.candidate import Candidate
from cudal1.extract.extract import extract
from cudal1.harness.schedule.pool import Pool
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.prompts.prompt import DeviceFacts, PromptStyle, answer_text, generation_prompt
from cudal1.selection.reward import Advantage, speed_reward
from cudal1.suite import generator
from cudal1.teachers import rewrite
from cudal1.train.checkpoints import log_callback, quiet, without_printing
from cudal1.train.grpo import GrpoSettings, train_grpo
from cudal1.train.policy import EMBEDDED
from cudal1.train.sft import Pair, SftSettings, train_sft

MAX_NEW_TOKENS = 256


@dataclass(frozen=True)
class Size:
    """The amount of work."""

    steps: int
    """Steps of each run; all count."""
    prompts: int
    """Prompts of each step."""
    group: int
    problems: int


@dataclass(frozen=True)
class Step:
    """The seconds of one step, by part."""

    wall_s: float
    generate_s: float
    judge_s: float
    """Seconds of judging, build included: it is part of a verdict."""
    num_answers: int
    num_judged: int

    @property
    def train_s(self) -> float:
        """Return the seconds of all the rest: reference, gradient, update."""
        return self.wall_s - self.generate_s - self.judge_s


class World:
    """Problems and their verdicts; `cudal1.train.grpo.Environment`.

    Args:
        reuses: whether a judged source keeps its reward without being judged again.
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
        self._last: float | None = None
        self._prompted = 0.0
        """Time of the last call for a prompt, after which answers to all are sampled."""

    def begin(self) -> None:
        """Begin the first step, if none has begun."""
        self._last = self._last or time.perf_counter()

    def build_prompt(self, problem_id: str, step: int) -> list[dict[str, str]]:
        """Return the plain prompt."""
        self.begin()
        self._prompted = time.perf_counter()
        return self.prompt(problem_id)

    def prompt(self, problem_id: str) -> list[dict[str, str]]:
        """Return the chat that asks for an answer."""
        problem = self._problems[problem_id]
        return generation_prompt(problem, style=PromptStyle.COMPACT, facts=self._facts).as_chat()

    def offer(self, problem_ids: Sequence[str], texts: Sequence[str], step: int) -> None:
        """Note that some answers of a step exist; all are judged when they are scored."""
        self.generate_s = time.perf_counter() - self._prompted

    def score(
        self, problem_ids: Sequence[str], texts: Sequence[str], step: int
    ) -> list[float | None]:
        """Return certified speedups."""
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
        """End a step."""
        if "loss" not in values:
            return
        assert self._last is not None, "a step ended that never began"
        now = time.perf_counter()
        self.steps.append(
            Step(
                wall_s=now - self._last,
                judge_s=self.judge_s,
                generate_s=self.generate_s,
                num_answers=self.num_answers,
                num_judged=self.num_judged,
            )
        )
        note(
            f"step of {self.steps[-1].wall_s:.2f} s: generate {self.generate_s:.2f} s, judge "
            f"{self.judge_s:.2f} s, {self.num_judged} of {self.num_answers} judged"
        )
        self._last, self.judge_s, self.generate_s = now, 0.0, 0.0
        self.num_answers = self.num_judged = 0

    def state(self) -> dict[str, Any]:
        """Return an empty state: nothing is resumed."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Do nothing: nothing is resumed."""


OBJECTIVE: dict[str, Any] = {
    "learning_rate": 1e-4,
    "beta": 0.02,
    "epsilon": 0.2,
    "temperature": 1.0,
    "top_p": 1.0,
    "seed": 5,
}


def schooled(out: Path, facts: DeviceFacts, device_class: DeviceClass, *, steps: int) -> None:
    """Put the policy that both sides begin with into `out`."""
    problems = generator.problems(120, seed=7, device_class=device_class, split=Split.TRAIN)
    pairs: list[Pair] = []
    for problem in problems:
        for teacher in ("cautious", "librarian"):
            found = extract(rewrite(problem.source, teacher=teacher, attempt=0, seed=1)).source
            if found is not None:
                asked = generation_prompt(problem, style=PromptStyle.COMPACT, facts=facts).as_chat()
                pairs.append((asked, answer_text(found)))
    train_sft(
        EMBEDDED,
        out,
        pairs,
        SftSettings(
            steps=steps,
            batch_size=8,
            loss="dft",
            learning_rate=2e-4,
            warmup_steps=8,
            max_tokens=1024,
            checkpoint_every=10**6,
            seed=3,
            scale=ONE_PROCESS,
        ),
        work=out.with_suffix(".work"),
        on_log=lambda step, values: None,
    )


def our_steps(policy: Path, world: World, ids: Sequence[str], size: Size, folder: Path) -> None:
    """Run `train_grpo`; its steps are in `world`."""
    train_grpo(
        policy,
        folder / "out",
        ids,
        world,
        GrpoSettings(
            steps=size.steps,
            prompts_per_step=size.prompts,
            group_size=size.group,
            advantage=Advantage.NORMALIZED,
            entropy_coef=0.0,
            entropy_target=None,
            resamples=0,
            turns=1,
            mask_truncated=False,
            updates_per_batch=1,
            max_new_tokens=MAX_NEW_TOKENS,
            checkpoint_every=10**6,
            keeps_checkpoints=False,
            scale=ONE_PROCESS,
            vllm_server=None,
            **OBJECTIVE,
        ),
        work=folder / "work",
        on_log=world.on_log,
    )


def trl_steps(policy: Path, world: World, ids: Sequence[str], size: Size, folder: Path) -> None:
    """Run GRPOTrainer as it comes; its steps are in `world`."""
    import torch
    from datasets import Dataset
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    quiet()
    machine: dict[str, Any] = {} if torch.cuda.is_available() else {"bf16": False, "use_cpu": True}
    arguments = GRPOConfig(
        output_dir=str(folder),
        max_steps=size.steps,
        num_generations=size.group,
        per_device_train_batch_size=size.prompts * size.group,
        loss_type="grpo",
        use_bias_correction_kl=False,
        max_completion_length=MAX_NEW_TOKENS,
        lr_scheduler_type="constant",
        remove_unused_columns=False,
        logging_steps=1,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        **machine,
        **OBJECTIVE,
    )
    rows = [{"prompt": world.prompt(name), "problem_id": name} for name in ids]

    def reward(completions: Any, problem_id: list[str], **_: Any) -> list[float | None]:
        return world.score(problem_id, [completion[0]["content"] for completion in completions], 0)

    trainer: Any = GRPOTrainer(
        model=str(policy),
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(policy),
        callbacks=[log_callback(world.on_log)],
    )
    generate = trainer.model.generate

    def timed(*arguments: Any, **more: Any) -> Any:
        world.begin()
        started = time.perf_counter()
        made = generate(*arguments, **more)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        world.generate_s += time.perf_counter() - started
        return made

    trainer.model.generate = timed
    without_printing(trainer).train()


def as_json(step: Step) -> dict[str, float]:
    """Return a step with the seconds that follow from the others."""
    return {**asdict(step), "train_s": step.train_s}
