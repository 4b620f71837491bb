"""Fine-tune on (prompt, answer) pairs, supervised: stage 1, and every round of stage 2.

TRL's SFTTrainer does the work; this module has its settings, its checkpoints and its counts.
Examples of like length share a batch, so that little padding is computed: packing them would save
little.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cudal1.errors import TrainingError
from cudal1.settings.scale import ScaleParams
from cudal1.train import scaling
from cudal1.train.checkpoints import (
    latest_checkpoint,
    log_callback,
    quiet,
    train_from,
    without_printing,
)
from cudal1.train.finite import finite_callback
from cudal1.train.group.group import in_a_group
from cudal1.train.sampling.attention import avoid_cudnn, drop_mask, is_plain
from cudal1.train.sampling.recorded import can_record, record_layers

Pair = tuple[Sequence[dict[str, str]], str]
"""A prompt's messages and the answer to learn."""


@dataclass(frozen=True)
class SftSettings:
    """Settings of one training, by the names of params.yaml's section `sft`."""

    steps: int
    batch_size: int
    loss: str
    """"nll" or "dft" (`cudal1.settings.params.SftLoss`), on the answers only."""
    learning_rate: float
    warmup_steps: int
    max_tokens: int
    checkpoint_every: int
    seed: int
    scale: ScaleParams


@in_a_group
def train_sft(
    policy: Path,
    out: Path,
    pairs: Sequence[Pair],
    settings: SftSettings,
    *,
    work: Path,
    on_log: Callable[[int, Mapping[str, float]], None],
) -> int:
    """Train `policy` on the pairs and save to `out`; return the number of pairs that were too long.

    `work` holds checkpoints: after a kill the same call goes on from the last complete one. It is
    left there, since the caller's run may not be over.

    Raises:
        TrainingError: no pair is short enough.
    """
    from datasets import Dataset, disable_progress_bars
    from transformers import AutoTokenizer
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    quiet()
    disable_progress_bars()
    tokenizer: Any = AutoTokenizer.from_pretrained(policy)
    rows = [
        {"prompt": list(prompt), "completion": [{"role": "assistant", "content": answer}]}
        for prompt, answer in pairs
    ]
    fitting = [row for row in rows if _num_tokens(tokenizer, row) <= settings.max_tokens]
    if not fitting:
        raise TrainingError(
            f"{out.name}: none of {len(rows)} training pairs fits in {settings.max_tokens} tokens"
        )
    import torch

    on_gpu = torch.cuda.is_available()
    arguments = SFTConfig(
        output_dir=str(work),
        max_steps=settings.steps,
        loss_type=settings.loss,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup_steps,
        max_length=settings.max_tokens,
        completion_only_loss=True,
        packing=False,
        bf16=on_gpu,
        use_cpu=not on_gpu,
        max_grad_norm=1.0,
        train_sampling_strategy="group_by_length",
        logging_steps=5,
        report_to="none",
        save_strategy="steps",
        save_steps=settings.checkpoint_every,
        save_total_limit=2,
        seed=settings.seed,
        disable_tqdm=True,
        **scaling.trainer_arguments(settings.scale, settings.batch_size),
    )
    trainer: Any = SFTTrainer(
        model=str(policy),
        args=arguments,
        train_dataset=Dataset.from_list(fitting),
        processing_class=tokenizer,
        peft_config=scaling.adapter(settings.scale),
        callbacks=[finite_callback(), log_callback(on_log)],
    )
    if is_plain(trainer.model):
        drop_mask(trainer.model)  # the collator pads on the right
        if can_record(trainer):
            record_layers(trainer)
    else:
        avoid_cudnn()
    resumed = latest_checkpoint(work)
    train_from(without_printing(trainer), resumed)
    scaling.save_policy(trainer, tokenizer, out)
    return len(rows) - len(fitting)


def _num_tokens(tokenizer: Any, row: Mapping[str, Any]) -> int:
    text = tokenizer.apply_chat_template([*row["prompt"], *row["completion"]], tokenize=False)
    return len(tokenizer(text, add_special_tokens=False)["input_ids"])
