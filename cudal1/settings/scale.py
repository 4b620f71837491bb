"""The scale of training: processes, memory, and trained weights (params.yaml: scale)."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from cudal1.record import Record


class WeightsKind(StrEnum):
    """The type that weights are stored in while they are trained."""

    FLOAT32 = "float32"
    """4 bytes each; the smallest step of the optimiser counts."""
    BFLOAT16 = "bfloat16"
    """2 bytes each; for weights that do not change, beside an adapter."""

    @property
    def num_bytes(self) -> int:
        """The bytes of one weight."""
        return 4 if self is WeightsKind.FLOAT32 else 2


class AdapterParams(Record):
    """A low-rank adapter (LoRA, arXiv 2106.09685) on every linear layer but the last one."""

    rank: int = Field(gt=0)
    """Number of columns of A and of rows of B: W + (alpha / rank) B A."""
    alpha: int = Field(gt=0)


class ScaleParams(Record):
    """Settings that every stage that trains shares (docs/training/how-to.md)."""

    processes: int = Field(ge=1)
    """Number of processes, one a GPU. Above 1 the stage starts them with `accelerate launch`; they
    split each batch."""
    sharded: bool
    """True if weights, gradients and optimiser states are split over the processes (FSDP2). False:
    each process has all of them."""
    micro_batch: int | None = Field(ge=1)
    """Pairs or answers that a process computes at a time; its share of a batch is made of several
    such parts, and their gradients add up. None: the whole share at once."""
    dtype: WeightsKind
    """Type of the weights; arithmetic on a GPU is in bfloat16 either way."""
    checkpointing: bool
    """True to keep only each layer's input, and compute the rest again for the gradient: a third
    more time, a fraction of the memory."""
    adapter: AdapterParams | None
    """Adapter to train; None: all weights are trained."""

    @model_validator(mode="after")
    def _says_one_thing(self) -> Self:
        if self.sharded and self.processes == 1:
            raise ValueError("sharded over one process; raise processes, or say sharded: false")
        if self.sharded and self.adapter is not None:
            raise ValueError("sharded with an adapter: frozen weights need no shards; drop one")
        if self.adapter is None and self.dtype is WeightsKind.BFLOAT16:
            raise ValueError(
                "dtype bfloat16 without an adapter: steps below 0.4 % of a weight would be lost"
            )
        return self

    def passes(self, rows: int, *, unit: int = 1) -> tuple[int, int]:
        """Return the rows that a process computes at a time, and the passes for a batch of `rows`.

        Args:
            rows: pairs or answers of one batch, of all processes together.
            unit: rows that stay together in one process: a group of answers.

        Raises:
            ValueError: the rows cannot be split evenly.
        """
        if rows % (self.processes * unit):
            raise ValueError(
                f"a batch of {rows // unit} cannot be split over scale.processes: {self.processes}"
            )
        share = rows // self.processes
        size = share if self.micro_batch is None else min(self.micro_batch, share)
        if share % size:
            raise ValueError(
                f"{share} rows for each process are no multiple of scale.micro_batch: {size}"
            )
        return size, share // size
