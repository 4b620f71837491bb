"""Invariants between two inputs: equal, transposed, ordered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Literal

from cudal1.harness.inputs.invariants import MIN_EVIDENCE, sample
from cudal1.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch


class Relation(Record, ABC):
    """A property that two inputs have together in every draw."""

    first: int
    """Place of the first input."""
    second: int
    """Place of the second input."""

    @property
    def places(self) -> tuple[int, int]:
        """Both places."""
        return self.first, self.second

    @abstractmethod
    def text(self, first: int, second: int) -> str:
        """Return the relation in words, between inputs of these numbers."""

    @abstractmethod
    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return whether the relation holds between its two inputs."""

    @abstractmethod
    def is_sure(self, inputs: Sequence[torch.Tensor], num_draws: int) -> bool:
        """Return whether it can hardly be luck after this many draws."""

    @abstractmethod
    def restore(self, inputs: list[torch.Tensor]) -> None:
        """Put tensors that obey the relation in the two places."""


class Equal(Relation):
    """Both inputs have the same values."""

    kind: Literal["equal"] = "equal"

    def text(self, first: int, second: int) -> str:
        """Return the relation in words."""
        return f"input {second} equals input {first}"

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return whether both inputs are equal."""
        import torch

        one, other = inputs[self.first], inputs[self.second]
        return torch.equal(sample(one), sample(other)) and torch.equal(one, other)

    def is_sure(self, inputs: Sequence[torch.Tensor], num_draws: int) -> bool:
        """Return whether this many values would not be equal by luck."""
        some = sample(inputs[self.first])
        unlike = float((some != some.roll(1)).double().mean())
        return inputs[self.first].numel() * num_draws * unlike >= MIN_EVIDENCE

    def restore(self, inputs: list[torch.Tensor]) -> None:
        """Copy the first to the second."""
        inputs[self.second] = inputs[self.first].clone()


class Transposed(Relation):
    """Each matrix of the second input is the transpose of the first's."""

    kind: Literal["transposed"] = "transposed"

    def text(self, first: int, second: int) -> str:
        """Return the relation in words."""
        return f"input {second} is input {first} transposed"

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return whether one is the other's transpose."""
        import torch

        one, other = inputs[self.first].mT, inputs[self.second]
        return torch.equal(sample(one), sample(other)) and torch.equal(one, other)

    def is_sure(self, inputs: Sequence[torch.Tensor], num_draws: int) -> bool:
        """Return whether this many values would not be equal by luck."""
        return Equal(first=self.first, second=self.first).is_sure(inputs, num_draws)

    def restore(self, inputs: list[torch.Tensor]) -> None:
        """Copy the first, transposed, to the second."""
        inputs[self.second] = inputs[self.first].mT.contiguous()


class Ordered(Relation):
    """No element of the first input exceeds that of the second in its place."""

    kind: Literal["ordered"] = "ordered"

    def text(self, first: int, second: int) -> str:
        """Return the relation in words."""
        return f"input {first} nowhere exceeds input {second}"

    def holds(self, inputs: Sequence[torch.Tensor]) -> bool:
        """Return whether no element exceeds its counterpart."""
        one, other = inputs[self.first], inputs[self.second]
        if bool((sample(one) > sample(other)).any()):
            return False
        return bool((one <= other).all())

    def is_sure(self, inputs: Sequence[torch.Tensor], num_draws: int) -> bool:
        """Return whether other pairs of their elements are often in the opposite order.

        Numbers that are all larger than others, by their size, are ordered without intent.
        """
        one, other = sample(inputs[self.first]), sample(inputs[self.second])
        exceeds = float((one > other.roll(1)).double().mean())
        return inputs[self.first].numel() * num_draws * exceeds >= MIN_EVIDENCE

    def restore(self, inputs: list[torch.Tensor]) -> None:
        """Put the smaller of each two in the first, the larger in the second."""
        import torch

        one, other = inputs[self.first], inputs[self.second]
        inputs[self.first], inputs[self.second] = torch.min(one, other), torch.max(one, other)


def suspected(inputs: Sequence[torch.Tensor]) -> Iterator[Equal | Transposed | Ordered]:
    """Yield relations that hold in a first draw: the strongest of each two inputs of one type.

    An input that equals an earlier one has no other relation.
    """
    copies = set[int]()
    for second in range(len(inputs)):
        for first in range(second):
            if first in copies or second in copies:
                continue
            one, other = inputs[first], inputs[second]
            if one.dtype != other.dtype or one.numel() < 2:
                continue
            for found in _possible(one, other, first, second):
                if found.holds(inputs):
                    if isinstance(found, Equal):
                        copies.add(second)
                    yield found
                    break


def _possible(
    one: torch.Tensor, other: torch.Tensor, first: int, second: int
) -> Iterator[Equal | Transposed | Ordered]:
    if one.shape == other.shape:
        yield Equal(first=first, second=second)
    if one.dim() >= 2 and one.dim() == other.dim() and one.shape == other.mT.shape:
        yield Transposed(first=first, second=second)
    if one.shape == other.shape and str(one.dtype) != "torch.bool":
        yield Ordered(first=first, second=second)
        yield Ordered(first=second, second=first)
