"""Which policies attend in the plain way, and how a policy attends without a mask, and with one."""

from __future__ import annotations

from typing import Any

CAUSAL = "cudal1_causal"
"""Our name for transformers' `sdpa` where no mask is ever made: each token sees those before it."""


def is_plain(model: Any) -> bool:
    """Whether every layer attends to all earlier tokens, by torch's own attention.

    Others have sliding windows, or states instead of keys, or kernels with their own masks.
    """
    from transformers.cache_utils import StaticCache, StaticLayer

    config = model.config.get_text_config(decoder=True)
    if model.config.is_encoder_decoder or config._attn_implementation != "sdpa":
        return False
    try:
        layers = StaticCache(config=config, max_cache_len=1).layers
    except (AttributeError, KeyError, ValueError):
        return False
    return bool(layers) and all(type(layer) is StaticLayer for layer in layers)


def drop_mask(model: Any) -> None:
    """Let a plain model attend causally and nothing more: for rows padded on the right.

    Their real tokens see no padding anyway. Without a mask torch takes its fast kernels, and the
    host does not look at the batch.
    """
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(CAUSAL, sdpa_attention_forward)
    without_adapters(model).set_attn_implementation(CAUSAL)


def avoid_cudnn() -> None:
    """In this process torch attends by its other kernels, which learn through masks correctly.

    cuDNN's backward pass, torch's first choice on Hopper since 2.11, gives NaN for queries where a
    mask is passed, rows are 64 tokens longer than a multiple of 128 and a query's scores are low
    (github.com/pytorch/pytorch/issues/196678).
    """
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)


def without_adapters(model: Any) -> Any:
    """The transformers model inside a PEFT one; any other itself."""
    inner = getattr(model, "get_base_model", None)
    return model if inner is None else inner()
