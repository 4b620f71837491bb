"""Scale in the trainers' words: arguments, adapter, and how a trained policy is saved.

Shapes: W (out, in) the weights of a linear layer, A (rank, in) and B (out, rank) its adapter.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cudal1.scale import ScaleParams

VLLM_TIMEOUT_S = 240.0
"""For a server that is still loading its weights."""


def trainer_arguments(scale: ScaleParams, rows: int, *, unit: int = 1) -> dict[str, Any]:
    """Of TRL's configurations: how a batch of `rows` is computed; `unit` as in `passes`."""
    size, passes = scale.passes(rows, unit=unit)
    return {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": passes,
        "gradient_checkpointing": scale.checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": False} if scale.checkpointing else None,
        "model_init_kwargs": {"dtype": scale.dtype.value},
        "ddp_find_unused_parameters": False,
    }


def rollout_arguments(vllm_server: str | None) -> dict[str, Any]:
    """Of TRL's GRPO configuration: who samples."""
    if vllm_server is None:
        return {"use_vllm": False}
    return {
        "use_vllm": True, "vllm_mode": "server", "vllm_server_base_url": vllm_server,
        "vllm_server_timeout": VLLM_TIMEOUT_S,
    }  # fmt: skip


def adapter(scale: ScaleParams) -> Any:
    """The `peft` configuration, or None when all weights are trained.

    TRL's KL reference then is the model with its adapter off: the initial policy, in no memory.
    """
    if scale.adapter is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=scale.adapter.rank, lora_alpha=scale.adapter.alpha, lora_dropout=0.0, bias="none",
        target_modules="all-linear", task_type="CAUSAL_LM",
    )  # fmt: skip


def save_policy(trainer: Any, tokenizer: Any, base: Path, out: Path, scale: ScaleParams) -> None:
    """Write the trained policy as a plain folder: whole weights, no shards, no adapter.

    Every process calls it; the first one writes. An adapter is added to the weights that it was
    trained on, W + (alpha / rank) B A, in float32; the sum is stored in `scale.dtype`.
    """
    accelerator = trainer.accelerator
    state = accelerator.get_state_dict(trainer.model)  # gathers shards: all take part
    if accelerator.is_main_process:
        shutil.rmtree(out, ignore_errors=True)
        if scale.adapter is None:
            accelerator.unwrap_model(trainer.model).save_pretrained(out, state_dict=state)
        else:
            _save_merged(accelerator.unwrap_model(trainer.model), state, base, out, scale)
        tokenizer.save_pretrained(out)
    accelerator.wait_for_everyone()


def _save_merged(model: Any, state: Any, base: Path, out: Path, scale: ScaleParams) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    partial = out.with_name(f".{out.name}.adapter")
    model.save_pretrained(partial, state_dict=state)
    whole: Any = AutoModelForCausalLM.from_pretrained(base, dtype="float32")
    merged: Any = PeftModel.from_pretrained(whole, str(partial))
    merged = merged.merge_and_unload()
    merged.to(getattr(torch, scale.dtype.value)).save_pretrained(out)
    shutil.rmtree(partial)
