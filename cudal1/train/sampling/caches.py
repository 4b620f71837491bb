"""Make caches of keys and values: one of whole prompts, and one with room for answers.

Shapes: B answers, P distinct prompts, W tokens of a padded prompt, L places in a cache, V tokens of
the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def read(
    model: Any, prompts: Sequence[Sequence[int]], *, pad_id: int
) -> tuple[torch.Tensor, Any, torch.Tensor]:
    """Return the mask (P, W) of prompts padded left, their keys and values, last scores (P, V)."""
    import torch
    from transformers import DynamicCache

    width = max(map(len, prompts))
    tokens = [[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[False] * (width - len(prompt)) + [True] * len(prompt) for prompt in prompts]
    mask_PW = torch.tensor(mask, device=model.device)
    made = model(
        input_ids=torch.tensor(tokens, device=model.device),
        attention_mask=mask_PW.long(),
        position_ids=(mask_PW.cumsum(-1) - 1).clamp(min=0),
        logits_to_keep=1,
        use_cache=True,
        past_key_values=DynamicCache(config=model.config),
    )
    return mask_PW, made.past_key_values, made.logits[:, -1]


def fixed(read: Any, *, batch: int, room: int) -> Any:
    """Return an empty cache of B rows and L places, for the same layers as `read`.

    On a CPU its layers show attention the filled places only. A recorded step has to see all.

    It has the type that attention computes in. Under autocast that is not the type of `read`:
    autocast rounds keys and values for attention, but `read` holds float32 (norms give keys in it).
    """
    import torch
    from transformers.cache_utils import Cache, StaticLayer

    kind = read.layers[0].values.device.type
    rounded = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None

    class Layer(StaticLayer):
        def update(self, key_states: Any, value_states: Any, *args: Any, **kwargs: Any) -> Any:
            kept: Any = self.dtype
            both = super().update(key_states.to(kept), value_states.to(kept), *args, **kwargs)
            if kind != "cpu":
                return both
            end = int(self.cumulative_length)
            return tuple(states[:, :, :end] for states in both)

    layers: list[Any] = [Layer(room) for _ in read.layers]
    for layer, seen in zip(layers, read.layers, strict=True):
        empty = [
            states[:1, :, :0].to(rounded or seen.values.dtype).expand(batch, -1, -1, -1)
            for states in (seen.keys, seen.values)
        ]
        layer.lazy_initialization(*empty)
    return Cache(layers=layers)
