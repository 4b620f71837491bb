"""Sample answers of a policy with plain attention, as `generate` would, with less waiting.

A small policy's decoding step launches hundreds of kernels, each of which ends before the next one
is launched. Here the cache has a fixed size. So on a GPU one step, drawing included, is recorded as
a CUDA graph and replayed for every token. A prompt that several answers share is read once. The
host asks only now and then whether all answers have ended.

Shapes: B answers, P distinct prompts, W tokens of a padded prompt, T tokens of an answer, L places
in the cache, V tokens of the vocabulary.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from cudal1.train.sampling import caches
from cudal1.train.sampling.draws import Draw

if TYPE_CHECKING:
    import torch

log = logging.getLogger("cudal1")

OnEnd = Callable[[Sequence[int], list[list[int]]], None]
"""A callback that takes answers: their prompts' places, and their tokens."""
ROOM = 128
"""Places by which the cache grows, so that not every longer prompt needs a new graph."""
LOOK_EVERY = 16
"""Tokens between two checks for ended answers; at a check the host waits."""
WARM_UPS = 3
"""Steps before a recording, in which libraries settle what they allocate and choose."""


class Rollouts:
    """A sampler for a policy (`attention.is_plain`) that may learn between two calls.

    The cache and the recording stay from call to call, even while the policy learns
    (`memory.rollouts`). On a CPU the policy should attend in groups (`attention`).

    Args:
        draw: draws tokens (`draws`).
        max_new_tokens: the longest answer, its end token counted.
        end_ids: tokens that end an answer.
        pad_id: any token; fills the left of short prompts.
    """

    def __init__(
        self, draw: Draw, *, max_new_tokens: int, end_ids: Sequence[int], pad_id: int
    ) -> None:
        self._draw = draw
        self._max_new_tokens = max_new_tokens
        self._end_ids = tuple(end_ids)
        self._pad_id = pad_id
        self._decoder: _Decoder | None = None

    def sample(
        self, model: Any, prompts: Sequence[Sequence[int]], *, on_end: OnEnd | None = None
    ) -> list[list[int]]:
        """Return one answer to each prompt, its end token included; equal prompts are read once.

        `on_end` gets each answer once, while others are still being sampled.
        """
        import torch

        distinct = {prompt: i for i, prompt in enumerate(dict.fromkeys(map(tuple, prompts)))}
        places = [distinct[tuple(p)] for p in prompts]
        with torch.no_grad():
            mask_PW, cache, logits_PV = caches.read(model, list(distinct), pad_id=self._pad_id)
            decoder = self._fitting(model, cache, len(prompts), mask_PW.shape[1])
            # a recording is for one number of answers: further ones to the last prompt fill it
            filled = [*places, *places[-1:] * (decoder.batch - len(places))]
            places_B = torch.tensor(filled, device=model.device)
            decoder.begin(cache, mask_PW, logits_PV, places_B)
            return decoder.finish(len(places), on_end)

    def _fitting(self, model: Any, read: Any, batch: int, width: int) -> _Decoder:
        """Return the last call's decoder if it is large enough, so that its graph is replayed."""
        import torch

        needed = width + self._max_new_tokens
        old = self._decoder
        weights = tuple(weight.data_ptr() for weight in model.parameters())
        if (
            old is not None
            and old.weights == weights
            and needed <= old.room
            and (old.batch == batch or (old.is_recorded and old.batch > batch))
        ):
            return old
        room = max(-(-needed // ROOM) * ROOM, 0 if old is None else old.room)
        self._decoder = old = None  # frees the old decoder's memory first
        decoder = _Decoder(
            model,
            read,
            batch=batch,
            room=room,
            num_tokens=self._max_new_tokens,
            draw=self._draw,
            end_ids=self._end_ids,
            pad_id=self._pad_id,
            weights=weights,
        )
        if model.device.type == "cuda":
            try:
                decoder.record()
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                log.warning("rollouts run unrecorded: %s", str(error).splitlines()[0])
        self._decoder = decoder
        return decoder


class _Decoder:
    """One decoding step over tensors that stay in place, so that it can be recorded."""

    def __init__(
        self,
        model: Any,
        read: Any,
        *,
        batch: int,
        room: int,
        num_tokens: int,
        draw: Draw,
        end_ids: Sequence[int],
        pad_id: int,
        weights: tuple[int, ...],
    ) -> None:
        import torch

        self.batch, self.room, self.weights = batch, room, weights
        self._model = model
        self._draw = draw
        self._graph: Any = None
        self._cache = caches.fixed(read, batch=batch, room=room)
        device = model.device
        self._pad_id = torch.tensor(pad_id, device=device)
        self._ends = frozenset(end_ids)
        self._end_ids = torch.tensor(list(end_ids), device=device)
        self._mask_B11L = torch.zeros((batch, 1, 1, room), dtype=torch.bool, device=device)
        self._tokens_B1 = torch.zeros((batch, 1), dtype=torch.long, device=device)
        self._positions_B1 = torch.zeros_like(self._tokens_B1)
        self._answers_BT = torch.zeros((batch, num_tokens), dtype=torch.long, device=device)
        self._count_1 = torch.zeros(1, dtype=torch.long, device=device)
        self._has_ended_B = torch.zeros(batch, dtype=torch.bool, device=device)
        draw.reserve(batch, num_tokens, device)

    def record(self) -> None:
        """Record the step as a CUDA graph; torch's generator gives new numbers at each replay.

        Raises:
            RuntimeError: the policy does something that cannot be recorded, such as asking the
                device for a number.
        """
        import torch

        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                self._rewind(0)
                self._step()
            self._rewind(0)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):  # others may use the GPU
            self._step()
        self._graph = graph

    def begin(
        self, read: Any, mask_PW: torch.Tensor, logits_PV: torch.Tensor, places_B: torch.Tensor
    ) -> None:
        """Draw the first tokens; answer b is to the prompt at `places_B[b]`, which `read` holds."""
        width = mask_PW.shape[1]
        self._rewind(width)
        for layer, prompt in zip(self._cache.layers, read.layers, strict=True):
            layer.keys[:, :, :width] = prompt.keys[places_B].to(layer.keys.dtype)
            layer.values[:, :, :width] = prompt.values[places_B].to(layer.values.dtype)
        self._mask_B11L.zero_()
        self._mask_B11L[:, 0, 0, :width] = mask_PW[places_B]
        self._positions_B1.copy_(mask_PW.sum(-1, keepdim=True)[places_B] - 1)
        self._draw.begin()
        self._append(logits_PV[places_B])

    @property
    def is_recorded(self) -> bool:
        """Return whether the step is a recorded graph."""
        return self._graph is not None

    def finish(self, num_answers: int, on_end: OnEnd | None) -> list[list[int]]:
        """Return the first answers begun, each up to its end."""
        step = self._step if self._graph is None else self._graph.replay
        answers: dict[int, list[int]] = {}
        num_tokens = self._answers_BT.shape[1]
        for count in range(1, num_tokens + 1):
            if (is_full := count == num_tokens) or count % LOOK_EVERY == 0:
                has_ended = (self._has_ended_B | is_full).tolist()
                ended = [b for b in range(num_answers) if has_ended[b] and b not in answers]
                if ended:
                    tokens = self._answers_BT[:, :count].tolist()
                    answers |= {b: self._cut(tokens[b]) for b in ended}
                if ended and on_end is not None:
                    on_end(ended, [answers[b] for b in ended])
                if len(answers) == num_answers:
                    break
            step()
        return [answers[b] for b in range(num_answers)]

    def _cut(self, tokens: list[int]) -> list[int]:
        for i, token in enumerate(tokens):
            if token in self._ends:
                return tokens[: i + 1]
        return tokens

    def _rewind(self, width: int) -> None:
        for layer in self._cache.layers:
            layer.cumulative_length.fill_(width)
        self._count_1.zero_()
        self._has_ended_B.zero_()

    def _step(self) -> None:
        place = self._cache.layers[0].cumulative_length
        self._mask_B11L.index_fill_(3, place.view(1), True)
        # on a CPU the cache shows no more; on a GPU the host asks the device nothing
        num_seen = int(place) + 1 if place.device.type == "cpu" else self.room
        logits_B1V = self._model(
            input_ids=self._tokens_B1,
            attention_mask=self._mask_B11L[..., :num_seen],
            position_ids=self._positions_B1,
            past_key_values=self._cache,
            use_cache=True,
        ).logits
        self._append(logits_B1V[:, -1])

    def _append(self, logits_BV: torch.Tensor) -> None:
        import torch

        drawn_B = self._draw(logits_BV, self._count_1)
        drawn_B = torch.where(self._has_ended_B, self._pad_id, drawn_B)
        self._answers_BT.index_copy_(1, self._count_1, drawn_B.unsqueeze(1))
        self._has_ended_B.logical_or_((drawn_B.unsqueeze(1) == self._end_ids).any(-1))
        self._tokens_B1.copy_(drawn_B.unsqueeze(1))
        self._positions_B1.add_(1)
        self._count_1.add_(1)
