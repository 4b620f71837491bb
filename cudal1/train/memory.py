"""Estimate the memory that training takes on each GPU, before it is started.

Only tensors are counted. What PyTorch, CUDA and the harness take for themselves is not counted, nor
are the gaps between tensors: leave a tenth of the GPU free. `benchmarks/training/big_policy.py`
measures the rest.

Shapes: B rows at a time, P distinct prompts of B rows, T tokens of a row, N parameters, D hidden, M
mlp, V vocabulary.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from cudal1.errors import TrainingError
from cudal1.settings.scale import ScaleParams, WeightsKind
from cudal1.train.sampling.rollouts import ROOM

FLOAT32 = 4
COMPUTED = 2
"""Bytes of an intermediate number, in bfloat16."""
ADAM_STATES = 2
"""Numbers of AdamW for each parameter: means of the gradient and of its square."""
SAMPLED_COPIES = 3
"""Copies of the next token's scores, while it is drawn from them."""


@dataclass(frozen=True)
class Architecture:
    """The numbers of a model on which its memory depends."""

    num_parameters: int
    num_linear: tuple[tuple[int, int], ...]
    """(in, out) of each linear layer that an adapter is put on."""
    largest_unit: int
    """Parameters of the largest part that FSDP gathers at once: a layer, or the embeddings."""
    layers: int
    hidden: int
    query: int
    """Width of all query heads together."""
    key: int
    """Width of all key heads together; values have the same."""
    mlp: int
    vocabulary: int

    def num_adapter_parameters(self, rank: int) -> int:
        """Return the parameters of a low-rank adapter: A is (rank, in), B is (out, rank)."""
        return sum(rank * (inputs + outputs) for inputs, outputs in self.num_linear)


def architecture_of(config: Any) -> Architecture:
    """Return the numbers of a `transformers` configuration, from a model built without memory.

    Raises:
        TrainingError: it does not name its parts as Llama, Qwen and their kin do.
    """
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    head = model.get_output_embeddings()
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    layers = model.get_decoder().layers
    units = [*layers, model.get_input_embeddings(), head]
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size"):
        if not hasattr(config, name):
            raise TrainingError(
                f"{config.model_type}: no estimate for this architecture, which names no {name}"
            )
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Architecture(
        num_parameters=_count(model),
        num_linear=tuple((m.in_features, m.out_features) for m in linear),
        largest_unit=max(_count(unit) for unit in units),
        layers=len(layers),
        hidden=config.hidden_size,
        query=width * config.num_attention_heads,
        key=width * config.num_key_value_heads,
        mlp=config.intermediate_size,
        vocabulary=config.vocab_size,
    )


def _count(module: Any) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@dataclass(frozen=True)
class Work:
    """The work of a training stage with its policy, for the whole batch."""

    rows: int
    """Pairs or answers of a batch."""
    unit: int
    """Rows that stay in one process, as in `ScaleParams.passes`."""
    tokens: int
    """Most tokens of a row, its prompt included: T."""
    samples: bool
    """True if the training processes sample the answers."""
    has_reference: bool
    """True if the loss compares with the initial policy (beta above 0)."""
    turns: int = 1
    """Answers of a trajectory: a turn's are sampled together, and later ones have own prompts."""


@dataclass(frozen=True)
class Estimate:
    """Bytes on each GPU, by purpose."""

    weights: int
    gradients: int
    optimizer: int
    reference: int
    copies: int
    activations: int
    rollouts: int
    sampling: int

    @property
    def peak(self) -> int:
        """Return the peak of a step, which samples, then learns, and keeps the rest throughout."""
        kept = self.weights + self.optimizer + self.reference + self.rollouts
        return kept + max(self.gradients + self.copies + self.activations, self.sampling)

    def parts(self) -> dict[str, int]:
        """Return all parts by name."""
        return asdict(self)


def estimate(model: Architecture, scale: ScaleParams, work: Work) -> Estimate:
    """Return the estimate for one GPU.

    Raises:
        ValueError: the batch cannot be split so.
    """
    size, passes = scale.passes(work.rows, unit=work.unit)
    rows = size * passes // work.turns if work.samples else 0
    unit = work.unit if work.turns == 1 else 1
    return Estimate(
        weights=weights(model, scale),
        gradients=gradients(model, scale),
        optimizer=optimizer(model, scale),
        reference=reference(model, scale) if work.has_reference else 0,
        copies=copies(model, scale),
        activations=activations(model, scale, tokens=size * work.tokens),
        rollouts=rollouts(model, scale, rows=rows, tokens=work.tokens),
        sampling=sampling(model, scale, rows=rows, unit=unit, tokens=work.tokens),
    )


def weights(model: Architecture, scale: ScaleParams) -> int:
    """Return N x bytes of `scale.dtype` / shards; an adapter is added in float32."""
    return model.num_parameters * scale.dtype.num_bytes // _shards(scale) + (
        0 if scale.adapter is None else _trained(model, scale) * FLOAT32
    )


def gradients(model: Architecture, scale: ScaleParams) -> int:
    """Return 4 x trained parameters / shards; twice that where DDP adds up in its own buckets."""
    once = _trained(model, scale) * FLOAT32 // _shards(scale)
    return 2 * once if scale.processes > 1 and not scale.sharded else once


def optimizer(model: Architecture, scale: ScaleParams) -> int:
    """Return 2 x 4 x trained parameters / shards; AdamW makes them in the first step."""
    return ADAM_STATES * _trained(model, scale) * FLOAT32 // _shards(scale)


def reference(model: Architecture, scale: ScaleParams) -> int:
    """Return N x bytes of `scale.dtype` / shards for the initial policy; 0 with an adapter."""
    if scale.adapter is not None:
        return 0
    return model.num_parameters * scale.dtype.num_bytes // _shards(scale)


def copies(model: Architecture, scale: ScaleParams) -> int:
    """Return the bytes of weights cast to bfloat16 for computing, where they are kept in float32.

    Whole: 2 N, which autocast makes for a pass and keeps until its end. Sharded: two units at a
    time, the one in use and the next one, and the gradient of one.
    """
    if scale.sharded:
        return 3 * model.largest_unit * COMPUTED
    return model.num_parameters * COMPUTED if scale.dtype is WeightsKind.FLOAT32 else 0


def activations(model: Architecture, scale: ScaleParams, *, tokens: int) -> int:
    """Return the bytes that a pass over `tokens` = B T keeps for its gradient, and works in.

    The work is that of one layer. For each token a layer keeps its input and its sum after
    attention, each as it is, in float32 and normalised. It keeps queries, keys and values before
    and after they are rotated, and the output of attention. It keeps four numbers for each number
    of the MLP.

    With checkpointing all this is kept of one layer at a time, and of the others their input alone.
    Scores of tokens are never whole: TRL makes them tile by tile. With an adapter, each linear
    layer keeps its input once more, in float32.
    """
    residual = FLOAT32 if scale.dtype is WeightsKind.FLOAT32 else COMPUTED
    stream = model.hidden * (residual + FLOAT32 + COMPUTED)
    heads = (3 * model.query + 5 * model.key) * COMPUTED
    layer = 2 * stream + heads + 4 * model.mlp * COMPUTED
    if scale.adapter is not None:
        layer += FLOAT32 * sum(i for i, _ in model.num_linear) // model.layers
    entry = model.hidden * residual
    kept = model.layers * entry + layer if scale.checkpointing else model.layers * layer
    return tokens * kept


def rollouts(model: Architecture, scale: ScaleParams, *, rows: int, tokens: int) -> int:
    """Return the bytes that our own sampler keeps from step to step, even while the policy learns.

    They are its cache and the working memory of its recorded step: no other code may use a CUDA
    graph's memory. Scores: B V in float32, three times. Weights that are cast: as in `copies`.

    Over shards TRL samples with `generate`, which keeps nothing. TRL also samples so for policies
    that are not plain (`attention.is_plain`); these are counted as if they were plain.
    """
    if scale.sharded or rows == 0:
        return 0
    places = -(-tokens // ROOM) * ROOM
    return cache(model, rows=rows, tokens=places) + _scores(model, rows) + copies(model, scale)


def sampling(model: Architecture, scale: ScaleParams, *, rows: int, unit: int, tokens: int) -> int:
    """Return the further bytes of a process while it samples its `rows`, in groups of `unit`.

    Our own sampler reads P prompts, (2 D + 3 M) x 2 bytes for each token in one layer at a time,
    and holds their keys and values, before they are shared out. `generate` reads all rows, and
    makes its cache and scores anew. Weights that are cast: as in `copies`.
    """
    if rows == 0:
        return 0
    read = rows if scale.sharded else rows // unit
    reading = (2 * model.hidden + 3 * model.mlp) * COMPUTED * read * tokens
    if not scale.sharded:
        return reading + cache(model, rows=read, tokens=tokens) + copies(model, scale)
    made = cache(model, rows=rows, tokens=tokens)
    return made + max(reading, _scores(model, rows)) + copies(model, scale)


def cache(model: Architecture, *, rows: int, tokens: int) -> int:
    """Return the bytes of keys and values: 2 x layers x key width x 2 for each of B T tokens."""
    return 2 * model.layers * model.key * COMPUTED * rows * tokens


def _scores(model: Architecture, rows: int) -> int:
    return SAMPLED_COPIES * rows * model.vocabulary * FLOAT32


def _trained(model: Architecture, scale: ScaleParams) -> int:
    """Return the number of parameters that are trained."""
    if scale.adapter is None:
        return model.num_parameters
    return model.num_adapter_parameters(scale.adapter.rank)


def _shards(scale: ScaleParams) -> int:
    return scale.processes if scale.sharded else 1
