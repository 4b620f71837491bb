"""Invariants of an input: properties that it has in every draw of a problem's generator.

Each kind is a record that knows its words, whether a tensor obeys it, and how to bring a changed
tensor back. A kind is suspected from one or two draws, must survive all others (`after`), and must
not be luck (`is_sure`). Kinds are in `zero_patterns`, `value_invariants` and `row_invariants`;
`domain` looks for all of them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field, PlainSerializer

from cudal1.record import Record

if TYPE_CHECKING:
    import torch

MIN_EVIDENCE = 14.0
"""Violations to expect by luck in all draws, where none was seen. A tensor without the invariant
shows none by luck once in exp(14), a million times."""
SAMPLE = 4096
"""Elements that are examined before all are."""
SAMPLE_ROWS = 16
"""Rows that are examined before all are."""
FEW = 16
"""Number of distinct values up to which they form a set that the generator chooses from."""


Number = Annotated[
    float,
    Field(allow_inf_nan=True),
    PlainSerializer(lambda x: x if math.isfinite(x) else str(x), when_used="json"),
]
"""A value of a tensor: masks hold infinities, for which JSON has no number."""


class Invariant(Record, ABC):
    """A property that a tensor has in every draw."""

    @abstractmethod
    def text(self) -> str:
        """Return the invariant in words that complete "input 0: …"."""

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether tensors of a shape can obey it; an invariant from a file may not fit."""
        return True

    @abstractmethod
    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether a tensor obeys it; `drawn` is one draw of the generator."""

    @abstractmethod
    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return a changed tensor brought back as near as possible; `own` is the drawn one.

        It may fail, as `holds` tells.
        """

    def after(self, tensor: torch.Tensor, first: torch.Tensor) -> Self | None:
        """Return the part that holds for a further draw, too; None where no part does."""
        return self if self.holds(tensor, first) else None

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether it can hardly be luck after this many draws."""
        return True


def sample(tensor: torch.Tensor, count: int = SAMPLE) -> torch.Tensor:
    """Return up to `count` of a tensor's values, on the CPU, at places that follow no pattern.

    A GPU would have to load programs to sort the few values, in each process anew.
    """
    import torch

    if tensor.numel() <= count:
        return tensor.reshape(-1).cpu()
    # a generator of its own: the random numbers of other code do not change
    generator = torch.Generator("cpu").manual_seed(0)
    places = torch.randint(tensor.numel(), (count,), generator=generator, device="cpu")
    return _at(tensor, places, tensor.dim()).cpu()


def some_rows(tensor: torch.Tensor, dim: int) -> torch.Tensor:
    """Return up to `SAMPLE_ROWS` rows along a dimension, which comes last: (rows, length)."""
    import torch

    moved = tensor.movedim(dim, -1)
    count = moved[..., 0].numel()
    if count <= SAMPLE_ROWS:
        return moved.reshape(count, -1)
    places = torch.linspace(0, count - 1, SAMPLE_ROWS, device="cpu").long()
    return _at(moved, places, moved.dim() - 1)


def _at(tensor: torch.Tensor, places: torch.Tensor, num_dims: int) -> torch.Tensor:
    """Return what lies at places, counted in the order of so many first dimensions.

    `torch.unravel_index` does the same, and imports PyTorch's compiler.
    """
    indices: list[torch.Tensor] = []
    for size in reversed(tensor.shape[:num_dims]):
        indices.append((places % size).to(tensor.device))
        places = places // size
    return tensor[tuple(reversed(indices))]


def is_few_valued(tensor: torch.Tensor) -> bool:
    """Return whether a sample holds few distinct values, each often: luck makes more of them."""
    some = sample(tensor)
    return some.unique().numel() <= min(FEW, some.numel() // 2)


def shown(value: float) -> str:
    """Return a number in short decimal form."""
    return f"{value:g}"
