"""Train by contrastive GRPO (paper 2.4) on TRL's GRPOTrainer.

The trainer knows nothing of problems, harness or ledger. It calls `build_prompt` right before each
group is sampled, `offer` with answers as they are sampled, and `score` for the reward of each
answer. Equations 4 and 5 are TRL's (`loss_type="grpo"`, group mean and standard deviation,
token-level clipped ratio, KL to the initial policy in the loss). Equation 6 is in the rewards that
`score` returns.

This is the only module that depends on private methods of TRL (pinned for that reason).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudal1.selection.reward import Advantage
from cudal1.settings.scale import ScaleParams
from cudal1.train import scaling
from cudal1.train.checkpoints import (
    latest_checkpoint,
    log_callback,
    quiet,
    train_from,
    without_printing,
)
from cudal1.train.environment import Environment, Offers
from cudal1.train.epochs import Epochs
from cudal1.train.finite import finite_callback
from cudal1.train.group.group import in_a_group
from cudal1.train.sampling.answering import Answering
from cudal1.train.sampling.attention import avoid_cudnn

STATE_FILE = "cudal1.json"
_KEPT = "policy-"


@dataclass(frozen=True)
class GrpoSettings:
    """Settings of one training, by the names of params.yaml's section `rl`."""

    steps: int
    prompts_per_step: int
    group_size: int
    learning_rate: float
    beta: float
    epsilon: float
    advantage: Advantage
    entropy_coef: float
    entropy_target: float | None
    resamples: int
    turns: int
    mask_truncated: bool
    updates_per_batch: int
    temperature: float
    top_p: float
    max_new_tokens: int
    checkpoint_every: int
    keeps_checkpoints: bool
    """True if the weights of every checkpoint stay (`kept_policies`)."""
    seed: int
    scale: ScaleParams
    vllm_server: str | None


@in_a_group
def train_grpo(
    policy: Path,
    out: Path,
    problem_ids: Sequence[str],
    environment: Environment,
    settings: GrpoSettings,
    *,
    work: Path,
    on_log: Callable[[int, Mapping[str, float]], None],
) -> None:
    """Train `policy` in `environment` and save to `out`.

    `work` holds checkpoints with the environment's state: after a kill the same call goes on from
    the last complete one. The last two stay; `kept_policies` has the weights of all, if asked for.
    """
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig

    quiet()
    disable_progress_bars()
    avoid_cudnn()
    tokenizer: Any = AutoTokenizer.from_pretrained(policy)
    on_gpu = torch.cuda.is_available()
    arguments = GRPOConfig(
        output_dir=str(work),
        max_steps=settings.steps,
        num_generations=settings.group_size,
        num_iterations=settings.updates_per_batch,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
        max_completion_length=settings.max_new_tokens,
        temperature=settings.temperature,
        top_p=settings.top_p,
        loss_type="grpo",
        scale_rewards="group" if settings.advantage is Advantage.NORMALIZED else "none",
        mask_truncated_completions=settings.mask_truncated,
        entropy_coef=settings.entropy_coef,
        use_adaptive_entropy=settings.entropy_target is not None,
        entropy_target=settings.entropy_target or 0.0,
        epsilon=settings.epsilon,
        beta=settings.beta,
        use_bias_correction_kl=False,
        bf16=on_gpu,
        use_cpu=not on_gpu,
        remove_unused_columns=False,
        logging_steps=1,
        report_to="none",
        save_strategy="steps",
        save_steps=_checkpoint_steps(settings.checkpoint_every, settings.updates_per_batch),
        save_total_limit=2,
        seed=settings.seed,
        disable_tqdm=True,
        log_completions=False,
        **scaling.trainer_arguments(
            settings.scale,
            settings.prompts_per_step * settings.group_size,
            unit=settings.group_size,
        ),
        **scaling.rollout_arguments(settings.vllm_server),
    )
    rows = [
        {"prompt": [{"role": "user", "content": problem_id}], "problem_id": problem_id}
        for problem_id in problem_ids
    ]
    resumed = latest_checkpoint(work, last_file=STATE_FILE)
    if resumed is not None:
        environment.restore(json.loads((resumed / STATE_FILE).read_text(encoding="utf-8")))
    offers = Offers(environment)
    trainer = _trainer_class()(
        model=str(policy),
        reward_funcs=_reward_function(offers, _unit(settings)),
        args=arguments,
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        peft_config=scaling.adapter(settings.scale),
        callbacks=[finite_callback(), log_callback(on_log)],
    )
    if settings.keeps_checkpoints:
        trainer.add_callback(_keeping_callback(trainer, tokenizer))
    trainer.add_callback(_state_callback(environment))  # last: its file says that all is written
    trainer.environment = environment
    trainer.offers = offers
    trainer.answering = Answering(
        trainer, offers, resamples=settings.resamples, turns=settings.turns
    )
    train_from(without_printing(trainer), resumed)
    scaling.save_policy(trainer, tokenizer, out)


def _checkpoint_steps(wanted: int, updates_per_batch: int) -> int:
    """Return a multiple of the updates: TRL does not save the answers of a half-used batch."""
    return max(1, round(wanted / updates_per_batch)) * updates_per_batch


def _unit(settings: GrpoSettings) -> float:
    """Return what a reward is multiplied with, for TRL subtracts the mean of the whole group.

    Less the mean of the G - 1 others, a reward is G / (G - 1) times as far from it.
    """
    if settings.advantage is Advantage.NORMALIZED:
        return 1.0
    return settings.group_size / (settings.group_size - 1)


def _reward_function(offers: Offers, unit: float) -> Any:
    def speedup(
        prompts: Any, completions: Any, problem_id: list[str], trainer_state: Any, **_: Any
    ) -> list[float | None]:
        texts = [completion[0]["content"] for completion in completions]
        earned = offers.score(problem_id, texts, trainer_state.global_step)
        return [None if reward is None else unit * reward for reward in earned]

    return speedup


def _trainer_class() -> Any:
    import torch
    from trl.trainer.grpo_trainer import GRPOTrainer

    class ContrastiveTrainer(GRPOTrainer):
        """A trainer that makes a group's prompt right before sampling, and offers ended answers."""

        environment: Environment
        offers: Offers
        answering: Answering
        _problem_ids: list[str]

        def _get_train_sampler(self, dataset: Any = None) -> Any:
            sampler: Any = super()._get_train_sampler(dataset)
            return Epochs(sampler, lambda: int(self.state.epoch or 0), seed=self.args.seed)

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> Any:
            step = self.state.global_step
            self._problem_ids = [row["problem_id"] for row in inputs]
            fresh = {
                problem_id: self.environment.build_prompt(problem_id, step)
                for problem_id in dict.fromkeys(self._problem_ids)
            }
            renewed = [{**row, "prompt": fresh[row["problem_id"]]} for row in inputs]
            with scaling.in_step(self.model, is_sharded=self.is_fsdp_enabled):
                return super()._generate_and_score_completions(renewed)

        def _generate_single_turn(self, prompt_ids: Any, *others: Any, **more: Any) -> Any:
            def plainly(asked: Sequence[list[int]]) -> list[list[int]]:
                return super(ContrastiveTrainer, self)._generate_single_turn(
                    asked, *others, **more
                )[0]

            def refined(places: Sequence[int]) -> list[list[int]]:
                self._leave_device()
                chats = self.offers.refine(places, self.state.global_step)
                return self._tokenize_prompts(chats)[0]

            # TRL learns from the prompts in this list, which later turns change
            answers = self.answering.sample(self._problem_ids, prompt_ids, plainly, refined)
            self._metrics["train"]["resampled"].append(self.answering.repeated_share)
            return answers

        def _calculate_rewards(self, *arguments: Any) -> Any:
            self._leave_device()
            return super()._calculate_rewards(*arguments)

        def _leave_device(self) -> None:
            if torch.cuda.is_available():  # a device that measures does nothing else
                torch.cuda.synchronize()
                if not self.environment.judges_meanwhile:
                    torch.cuda.empty_cache()  # gives unused memory to the workers

    return ContrastiveTrainer


def kept_policies(work: Path) -> dict[int, Path]:
    """Return the weights that `keeps_checkpoints` has left, by step, for `scaling.plain_policy`."""
    found = {int(path.name.removeprefix(_KEPT)): path for path in work.glob(f"{_KEPT}*")}
    return dict(sorted(found.items()))


def _keeping_callback(trainer: Any, tokenizer: Any) -> Any:
    from transformers import TrainerCallback

    class _Keeping(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            folder = Path(args.output_dir) / f"{_KEPT}{state.global_step}"
            scaling.keep_policy(trainer, tokenizer, folder)

    return _Keeping()


def _state_callback(environment: Environment) -> Any:
    from transformers import TrainerCallback

    class _State(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if not state.is_world_process_zero:
                return
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            partial = folder / f".{STATE_FILE}"
            partial.write_text(json.dumps(environment.state()), encoding="utf-8")
            partial.rename(folder / STATE_FILE)

    return _State()
