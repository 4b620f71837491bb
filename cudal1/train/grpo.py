"""Contrastive GRPO (paper 2.4) on TRL's GRPOTrainer.

The trainer knows nothing of problems, harness or ledger: it is given `build_prompt`, asked right
before each group is sampled, `offer`, told of answers as they are sampled, and `score`, which says
what each answer earns. Equations 4 and 5 are TRL's (`loss_type="grpo"`, group mean and standard
deviation, token-level clipped ratio, KL to the initial policy in the loss); equation 6 is in the
rewards that `score` returns.

This is the only module that depends on private methods of TRL (pinned for that reason).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from cudal1.scale import ScaleParams
from cudal1.train import scaling
from cudal1.train.attention import is_plain
from cudal1.train.checkpoints import latest_checkpoint, log_callback, quiet, without_printing
from cudal1.train.environment import Environment, Offers
from cudal1.train.epochs import Epochs
from cudal1.train.group import in_a_group
from cudal1.train.rollouts import OnEnd, Rollouts
from cudal1.train.served import Served

STATE_FILE = "cudal1.json"


@in_a_group
def train_grpo(
    policy: Path, out: Path, problem_ids: Sequence[str], environment: Environment, *, work: Path,
    steps: int, prompts_per_step: int, group_size: int, learning_rate: float, beta: float,
    epsilon: float, updates_per_batch: int, temperature: float, top_p: float,
    max_new_tokens: int, checkpoint_every: int, seed: int, scale: ScaleParams,
    vllm_server: str | None, on_log: Callable[[int, Mapping[str, float]], None],
) -> None:  # fmt: skip
    """Train `policy` in `environment` and save to `out`.

    `work` holds checkpoints with the environment's state: after a kill the same call goes on from
    the last complete one.
    """
    import torch
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer
    from trl.trainer.grpo_config import GRPOConfig

    quiet()
    disable_progress_bars()
    tokenizer: Any = AutoTokenizer.from_pretrained(policy)
    on_gpu = torch.cuda.is_available()
    arguments = GRPOConfig(
        output_dir=str(work), max_steps=steps, num_generations=group_size,
        num_iterations=updates_per_batch, learning_rate=learning_rate,
        lr_scheduler_type="constant", max_grad_norm=1.0, max_completion_length=max_new_tokens,
        temperature=temperature, top_p=top_p, loss_type="grpo", scale_rewards="group",
        epsilon=epsilon, beta=beta, use_bias_correction_kl=False, bf16=on_gpu, use_cpu=not on_gpu,
        remove_unused_columns=False,
        logging_steps=1, report_to="none", save_strategy="steps",
        save_steps=_checkpoint_steps(checkpoint_every, updates_per_batch), save_total_limit=2,
        seed=seed, disable_tqdm=True, log_completions=False,
        **scaling.trainer_arguments(scale, prompts_per_step * group_size, unit=group_size),
        **scaling.rollout_arguments(vllm_server),
    )  # fmt: skip
    rows = [
        {"prompt": [{"role": "user", "content": problem_id}], "problem_id": problem_id}
        for problem_id in problem_ids
    ]
    resumed = latest_checkpoint(work, last_file=STATE_FILE)
    if resumed is not None:
        environment.restore(json.loads((resumed / STATE_FILE).read_text(encoding="utf-8")))
    offers = Offers(environment)
    trainer = _trainer_class()(
        model=str(policy), reward_funcs=_reward_function(offers), args=arguments,
        train_dataset=Dataset.from_list(rows), processing_class=tokenizer,
        peft_config=scaling.adapter(scale),
        callbacks=[log_callback(on_log), _state_callback(environment)],
    )  # fmt: skip
    trainer.environment, trainer.offers = environment, offers
    trainer.rollouts = _rollouts(trainer)
    trainer.served = Served(trainer.vllm_generation) if trainer.use_vllm else None
    without_printing(trainer).train(resume_from_checkpoint=str(resumed) if resumed else None)
    scaling.save_policy(trainer, tokenizer, out)


def _checkpoint_steps(wanted: int, updates_per_batch: int) -> int:
    """A multiple of the updates: TRL does not save the answers of a batch that is half used."""
    return max(1, round(wanted / updates_per_batch)) * updates_per_batch


def _reward_function(offers: Offers) -> Any:
    def speedup(
        prompts: Any, completions: Any, problem_id: list[str], trainer_state: Any, **_: Any
    ) -> list[float | None]:
        texts = [completion[0]["content"] for completion in completions]
        return offers.score(problem_id, texts, trainer_state.global_step)

    return speedup


def _rollouts(trainer: Any) -> Rollouts | None:
    """Our sampler, where it serves; None: TRL's ways (`generate`, vLLM, gathered shards)."""
    sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    if trainer.use_vllm or sharded or not is_plain(trainer.model):
        return None
    return Rollouts(
        temperature=trainer.temperature, top_p=trainer.top_p,
        max_new_tokens=trainer.max_completion_length, end_ids=trainer.eos_token_ids,
        pad_id=trainer.processing_class.pad_token_id,
    )  # fmt: skip


def _trainer_class() -> Any:
    import torch
    from trl.models.utils import unwrap_model_for_generation
    from trl.trainer.grpo_trainer import GRPOTrainer

    class ContrastiveTrainer(GRPOTrainer):
        """Rebuilds every prompt right before sampling, one a group; offers answers as they end."""

        environment: Environment
        offers: Offers
        rollouts: Rollouts | None
        served: Served | None
        _problem_ids: list[str]
        _answers: list[list[int]]
        _logprobs: list[list[float]]

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
            self._answers = [[] for _ in prompt_ids]
            self._logprobs = [[] for _ in prompt_ids]
            together = not self.environment.judges_meanwhile
            if self.served is not None:
                self._send_weights()
                size: Any = self.num_generations
                self.served.sample(prompt_ids, size, self._take)
            elif self.rollouts is not None and together and self.accelerator.num_processes == 1:
                self._rolled_out(self.rollouts, prompt_ids, on_end=self._take)
            else:
                for part in _parts(self._problem_ids, together=together):
                    asked = prompt_ids[part.start : part.stop]
                    if self.rollouts is None:
                        answers, _ = super()._generate_single_turn(asked, *others, **more)
                    else:
                        answers = self._rolled_out(self.rollouts, asked)
                    self._take(part, answers)
            return self._answers, None if self.served is None else self._logprobs

        def _take(
            self, places: Sequence[int], answers: list[list[int]],
            logprobs: list[list[float]] | None = None,
        ) -> None:  # fmt: skip
            """Answers that have just ended, by their places in the batch."""
            for i, place in enumerate(places):
                self._answers[place] = answers[i]
                self._logprobs[place] = [] if logprobs is None else logprobs[i]
            tokenizer: Any = self.processing_class
            texts = tokenizer.batch_decode(answers, skip_special_tokens=True)
            problem_ids = [self._problem_ids[place] for place in places]
            self.offers.make(places, problem_ids, texts, self.state.global_step)

        def _send_weights(self) -> None:
            if self.state.global_step != self._last_loaded_step:
                self.vllm_generation.sync_weights()
                self._last_loaded_step = self.state.global_step
                self.accelerator.wait_for_everyone()  # one sends; nobody asks before it is done

        def _calculate_rewards(self, *arguments: Any) -> Any:
            if torch.cuda.is_available():  # a device that measures does nothing else
                torch.cuda.synchronize()
                if not self.environment.judges_meanwhile:
                    torch.cuda.empty_cache()  # what is not in use, workers may need
            return super()._calculate_rewards(*arguments)

        def _rolled_out(
            self, rollouts: Rollouts, prompt_ids: list[list[int]], *, on_end: OnEnd | None = None
        ) -> list[list[int]]:
            checkpointing: Any = self.args.gradient_checkpointing_kwargs
            with unwrap_model_for_generation(
                self.model_wrapped, self.accelerator, gradient_checkpointing_kwargs=checkpointing
            ) as model:
                return rollouts.sample(model, prompt_ids, on_end=on_end)

    return ContrastiveTrainer


def _parts(problem_ids: Sequence[str], *, together: bool) -> Iterator[range]:
    """Places of answers that are sampled at once: all, or group by group."""
    if together:
        yield range(len(problem_ids))
        return
    first = 0
    for _, group in groupby(problem_ids):
        last = first + len(list(group))
        yield range(first, last)
        first = last


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
