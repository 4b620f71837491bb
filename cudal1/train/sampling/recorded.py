"""Run a small policy's layers, forward and backward, as CUDA graphs.

One step over a few thousand tokens launches thousands of kernels, and a small model's kernels end
sooner than they can be launched. Each shape that comes often is recorded once, and its kernels are
then launched together. Nothing is compiled, so this pays within a few steps.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cudal1.train.sampling.attention import without_adapters

if TYPE_CHECKING:
    import torch

log = logging.getLogger("cudal1")

MAX_PARAMETERS = 200_000_000
"""Parameters above which kernels take longer than their launches."""
WIDTHS = 256
"""Multiple of tokens that rows are padded to, so that shapes are few and come often."""
RECORD_AT = 3
"""Number of a shape's occurrence at which it is recorded; a rare shape is not worth it."""


def can_record(trainer: Any) -> bool:
    """Return whether a recording can repeat a trainer's steps: one GPU, whole batches, small model.

    A recording's next replay overwrites its gradients, so they cannot be added up over several.
    """
    arguments = trainer.args
    return (
        trainer.model.device.type == "cuda"
        and trainer.accelerator.num_processes == 1
        and arguments.gradient_accumulation_steps == 1
        and not arguments.gradient_checkpointing
        and sum(weight.numel() for weight in trainer.model.parameters()) <= MAX_PARAMETERS
    )


def record_layers(trainer: Any) -> None:
    """Let a trainer's model, which attends without a mask, run its layers from recordings."""
    trainer.data_collator.pad_to_multiple_of = WIDTHS
    layers = without_adapters(trainer.model).base_model
    layers.forward = Recorded(layers)


class Recorded:
    """A replacement for the forward method of a model's layers (its `base_model`)."""

    def __init__(self, layers: Any) -> None:
        self._layers = layers
        self._plain: Callable[..., Any] = layers.forward
        self._seen: Counter[tuple[int, ...]] = Counter()
        self._recordings: dict[tuple[int, ...], Callable[[torch.Tensor], torch.Tensor]] = {}
        self._is_possible = True

    @property
    def num_recordings(self) -> int:
        """Return the number of shapes that are replayed."""
        return len(self._recordings)

    def __call__(self, **inputs: Any) -> Any:
        """Return last hidden states as transformers' models do; unusual inputs run unrecorded."""
        import torch
        from transformers.modeling_outputs import BaseModelOutputWithPast

        given = {name for name, value in inputs.items() if value is not None}
        is_usual = given <= {"input_ids", "attention_mask", "use_cache"}
        if not (is_usual and self._is_possible and torch.is_grad_enabled()):
            return self._plain(**inputs)
        tokens_BW = inputs["input_ids"]
        shape = tuple(tokens_BW.shape)
        self._seen[shape] += 1
        if self._seen[shape] == RECORD_AT:
            self._record(tokens_BW)
        recording = self._recordings.get(shape)
        if recording is None:
            return self._plain(**inputs)
        return BaseModelOutputWithPast(last_hidden_state=recording(tokens_BW))  # pyright: ignore[reportArgumentType]

    def _record(self, tokens_BW: torch.Tensor) -> None:
        import torch

        kind = tokens_BW.device.type
        uncached = torch.autocast(
            kind,
            dtype=torch.get_autocast_dtype(kind),
            cache_enabled=False,
            enabled=torch.is_autocast_enabled(kind),
        )
        try:
            with uncached:
                made: Any = torch.cuda.make_graphed_callables(
                    _as_module(self._layers, self._plain), (tokens_BW.clone(),)
                )
        except RuntimeError as error:
            log.warning("layers run unrecorded: %s", str(error).splitlines()[0])
            self._is_possible = False
        else:
            self._recordings[tuple(tokens_BW.shape)] = made


def _as_module(layers: Any, run: Callable[..., Any]) -> Any:
    """Return a module that takes tokens alone, with the layers' weights."""
    import torch

    class Layers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, tokens_BW: torch.Tensor) -> torch.Tensor:
            made = run(input_ids=tokens_BW, attention_mask=None, use_cache=False)
            return made.last_hidden_state

    return Layers()
