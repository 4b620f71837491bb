"""Translate scale into the trainers' arguments and adapter, and save a trained policy.

Shapes: W (out, in) the weights of a linear layer, A (rank, in) and B (out, rank) its adapter.
"""

from __future__ import annotations

import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cudal1.settings.scale import ScaleParams

VLLM_TIMEOUT_S = 240.0
"""Seconds to wait for a server that is still loading its weights."""


def trainer_arguments(scale: ScaleParams, rows: int, *, unit: int = 1) -> dict[str, Any]:
    """Return arguments of TRL's configurations for a batch of `rows`; `unit` as in `passes`."""
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
    """Return arguments of TRL's GRPO configuration that choose where answers are sampled."""
    if vllm_server is None:
        return {"use_vllm": False}
    return {
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_base_url": vllm_server,
        "vllm_server_timeout": VLLM_TIMEOUT_S,
    }


def adapter(scale: ScaleParams) -> Any:
    """Return the `peft` configuration, or None when all weights are trained.

    TRL's KL reference then is the model with its adapter off: the initial policy, in no memory.
    """
    if scale.adapter is None:
        return None
    from peft import LoraConfig

    return LoraConfig(
        r=scale.adapter.rank,
        lora_alpha=scale.adapter.alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )


@contextmanager
def in_step(model: Any, *, is_sharded: bool) -> Generator[None]:
    """While processes sample with shards of one model, keep finished ones going until all are done.

    Each token gathers the weights of every process. transformers waits for the other processes only
    where it has made the shards itself; accelerate made these, and transformers does not know of
    them.
    """
    if not is_sharded:
        yield
        return
    model._is_fsdp_managed_module = True
    try:
        yield
    finally:
        del model._is_fsdp_managed_module


def save_policy(trainer: Any, tokenizer: Any, out: Path) -> None:
    """Write the trained policy as a plain folder: whole weights, no shards, no adapter.

    Every process calls it; the first one writes. An adapter is added to the weights beside which
    it was trained: W + (alpha / rank) B A; in float32, since most of it is smaller than bfloat16's
    steps.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(model, "merge_and_unload"):
        model = model.float().merge_and_unload()
    _write(trainer.accelerator, model, tokenizer, out)


def keep_policy(trainer: Any, tokenizer: Any, out: Path) -> None:
    """Write the weights of a policy that trains on: its adapter alone, where it has one.

    Every process calls it; the first one writes. `out` is whole or absent.
    """
    accelerator = trainer.accelerator
    partial = out.with_name(f".{out.name}")
    _write(accelerator, accelerator.unwrap_model(trainer.model), tokenizer, partial)
    if accelerator.is_main_process:
        shutil.rmtree(out, ignore_errors=True)
        partial.rename(out)


def plain_policy(initial: Path, kept: Path, out: Path) -> None:
    """Write kept weights as a plain folder, as `save_policy` does.

    Args:
        initial: the policy that the training began with.
        kept: what `keep_policy` wrote.
        out: the folder to write.
    """
    shutil.rmtree(out, ignore_errors=True)
    if not (kept / "adapter_config.json").is_file():
        shutil.copytree(kept, out)
        return
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model: Any = AutoModelForCausalLM.from_pretrained(initial, dtype="float32")
    adapted: Any = PeftModel.from_pretrained(model, kept)
    adapted.merge_and_unload().save_pretrained(out)
    AutoTokenizer.from_pretrained(kept).save_pretrained(out)


def _write(accelerator: Any, model: Any, tokenizer: Any, out: Path) -> None:
    state = accelerator.get_state_dict(model)  # gathers shards, so all processes take part
    for tied in model.all_tied_weights_keys:  # a gathered tensor does not show that it is shared
        state.pop(tied, None)
    if accelerator.is_main_process:
        shutil.rmtree(out, ignore_errors=True)
        model.save_pretrained(out, state_dict=state)
        tokenizer.save_pretrained(out)
    accelerator.wait_for_everyone()
