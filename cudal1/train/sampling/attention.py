"""Recognise policies with plain attention, and let a policy attend with or without a mask.

Shapes: B answers, H heads of queries, K heads of keys, L places in a cache, D numbers of a head.
"""

from __future__ import annotations

from typing import Any

CAUSAL = "cudal1_causal"
"""Our name for transformers' `sdpa` where no mask is ever made: each token sees earlier tokens."""
GROUPED = "cudal1_grouped"
"""Our name for transformers' `sdpa` that copies no keys for the one new token of an answer."""


def is_plain(model: Any) -> bool:
    """Return whether every layer attends to all earlier tokens, by torch's own attention.

    Other policies have sliding windows, states instead of keys, or kernels with their own masks.
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
    """Let a plain model attend causally without a mask: for rows padded on the right.

    Real tokens come before the padding and so do not see it. Without a mask torch takes its fast
    kernels, and the host does not look at the batch.
    """
    from transformers import AttentionInterface
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    AttentionInterface.register(CAUSAL, sdpa_attention_forward)
    without_adapters(model).set_attn_implementation(CAUSAL)


def attend_in_groups(model: Any) -> None:
    """Let a plain model read each head of keys once for all heads of queries that share it.

    Where a mask is passed, transformers copies keys and values for each of these heads, at every
    token. With one query a head, the heads of a group are like queries of one head.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(GROUPED, _grouped)
    AttentionMaskInterface.register(GROUPED, sdpa_mask)
    without_adapters(model).set_attn_implementation(GROUPED)


def _grouped(
    module: Any,
    query_BHQD: Any,
    key_BKLD: Any,
    value_BKLD: Any,
    attention_mask: Any,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Any, None]:
    from torch.nn.functional import scaled_dot_product_attention
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    batch, heads, num_queries, width = query_BHQD.shape
    groups = key_BKLD.shape[1]
    is_unusual = others.get("dropout") or others.get("position_bias") is not None
    if num_queries > 1 or groups == heads or is_unusual:
        return sdpa_attention_forward(
            module, query_BHQD, key_BKLD, value_BKLD, attention_mask, scaling=scaling, **others
        )
    made = scaled_dot_product_attention(
        query_BHQD.reshape(batch, groups, heads // groups, width),
        key_BKLD,
        value_BKLD,
        attn_mask=attention_mask,  # of B, 1, 1, L: the same for all heads
        scale=scaling,
    )
    return made.reshape(batch, 1, heads, width), None


def avoid_cudnn() -> None:
    """Make torch attend in this process without cuDNN, which learns wrongly with masks.

    cuDNN's backward pass, torch's first choice on Hopper since 2.11, gives NaN for queries where a
    mask is passed, rows are 64 tokens longer than a multiple of 128 and a query's scores are low
    (github.com/pytorch/pytorch/issues/196678).
    """
    import torch

    torch.backends.cuda.enable_cudnn_sdp(False)


def without_adapters(model: Any) -> Any:
    """Return the transformers model inside a PEFT model; any other model itself."""
    inner = getattr(model, "get_base_model", None)
    return model if inner is None else inner()
