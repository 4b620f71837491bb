"""Invariants of rows and matrices: symmetry, repetition, norms, order."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from cudal1.harness.inputs.invariants import MIN_EVIDENCE, Invariant, is_few_valued, some_rows

if TYPE_CHECKING:
    import torch

Sign = Literal["positive", "non-negative"] | None
SIGNS: tuple[Sign, ...] = (None, "non-negative", "positive")
"""The signs from the weakest to the strongest."""
FEW_ROWS = 40
"""Rows, of all draws, that must obey where values are few and sums agree by luck."""
ROUNDINGS = 8.0
"""Units in the last place, of the largest element, by which mirrored elements may differ."""
DOUBTFUL_SUM = 0.1
"""Share of the sum of magnitudes below which a row's sum cannot be scaled to one."""


class Symmetric(Invariant):
    """Each matrix equals its transpose, but for rounding."""

    kind: Literal["symmetric"] = "symmetric"

    @classmethod
    def suspected(cls, first: torch.Tensor) -> Symmetric | None:
        """Return the invariant where a first draw is symmetric."""
        if first.dim() < 2 or first.shape[-1] != first.shape[-2] or first.shape[-1] < 2:
            return None
        corner = first[..., :16, :16]
        return cls() if cls().holds(corner, corner) and cls().holds(first, first) else None

    def text(self) -> str:
        """Return the invariant in words."""
        return "symmetric"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether a shape is that of square matrices."""
        return len(shape) >= 2 and shape[-1] == shape[-2]

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether the tensor is symmetric."""
        import torch

        if not tensor.is_floating_point():
            return torch.equal(tensor, tensor.mT)
        return float((tensor - tensor.mT).abs().max()) <= _rounding(tensor)

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the larger of each two mirrored elements in both places: a large one stays."""
        import torch

        lower = torch.where(changed.abs() >= changed.mT.abs(), changed, changed.mT)
        return lower.tril() + lower.tril(-1).mT

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether this many elements would not equal others by luck."""
        size = first.shape[-1]
        pairs = first.numel() // size * (size - 1) // 2 * num_draws
        moved = first.roll(1, dims=-1)
        if first.is_floating_point():
            unlike = (moved - moved.mT).abs() > _rounding(first)
        else:
            unlike = moved != moved.mT
        return pairs * float(unlike.double().mean()) >= MIN_EVIDENCE


class Along(Invariant):
    """A property along one dimension."""

    dim: int

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether tensors of a shape have the dimension."""
        return 0 <= self.dim < len(shape)


class Repeated(Along):
    """All elements along a dimension are equal: constant rows, a repeated batch."""

    kind: Literal["repeated"] = "repeated"

    @classmethod
    def suspected(cls, first: torch.Tensor, dim: int) -> Repeated | None:
        """Return the invariant where a first draw repeats itself along a dimension."""
        rows = some_rows(first, dim)
        if first.shape[dim] < 2 or bool((rows != rows[:, :1]).any()):
            return None
        return cls(dim=dim) if cls(dim=dim).holds(first, first) else None

    def text(self) -> str:
        """Return the invariant in words."""
        return f"equal along dim {self.dim}"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether the tensor repeats itself."""
        return bool((tensor == tensor.narrow(self.dim, 0, 1)).all())

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the first element of each row, repeated."""
        return changed.narrow(self.dim, 0, 1).expand_as(changed).contiguous()

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether this many elements would not be equal by luck."""
        repeats = (first.numel() - first.numel() // first.shape[self.dim]) * num_draws
        return repeats >= (FEW_ROWS if is_few_valued(first) else 2)


class SumsToOne(Along):
    """Elements along a dimension sum to one: probabilities, one-hot rows."""

    kind: Literal["sums_to_one"] = "sums_to_one"
    sign: Sign
    """Sign of all elements: a softmax makes them positive, and a kernel may take logarithms."""

    @classmethod
    def suspected(cls, first: torch.Tensor, dim: int) -> SumsToOne | None:
        """Return the invariant where sums of a first draw are one."""
        if first.shape[dim] < 2 or not _are_one(some_rows(first, dim).sum(dim=1)):
            return None
        found = cls(dim=dim, sign=_sign(first))
        return found if found.holds(first, first) else None

    def text(self) -> str:
        """Return the invariant in words."""
        return f"{f'{self.sign}, ' if self.sign else ''}sums to one along dim {self.dim}"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether the sums are one, and the sign is kept."""
        if SIGNS.index(_sign(tensor)) < SIGNS.index(self.sign):
            return False
        return _are_one(tensor.sum(dim=self.dim))

    def after(self, tensor: torch.Tensor, first: torch.Tensor) -> SumsToOne | None:
        """Return the invariant, with a sign that this draw has, too."""
        sign = min(self.sign, _sign(tensor), key=SIGNS.index)
        found = self.model_copy(update={"sign": sign})
        return found if found.holds(tensor, first) else None

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return rows divided by their sum; a row without one stays as it was drawn."""
        import torch

        if self.sign is not None:
            changed = changed.abs()
        if self.sign == "positive":
            changed = torch.where(changed > 0, changed, own)
        sums = changed.sum(dim=self.dim, keepdim=True)
        sizes = changed.abs().sum(dim=self.dim, keepdim=True)
        divides = (sums.abs() > DOUBTFUL_SUM * sizes) & sums.isfinite()
        return torch.where(divides, changed / sums, own)

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether this many sums would not be one by luck."""
        return _is_sure_of_rows(first, self.dim, num_draws)


class UnitNorm(Along):
    """Elements along a dimension are a vector of length one."""

    kind: Literal["unit_norm"] = "unit_norm"

    @classmethod
    def suspected(cls, first: torch.Tensor, dim: int) -> UnitNorm | None:
        """Return the invariant where norms of a first draw are one."""
        import torch

        norm = torch.linalg.vector_norm
        if first.shape[dim] < 2 or not _are_one(norm(some_rows(first, dim), dim=1)):
            return None
        return cls(dim=dim) if cls(dim=dim).holds(first, first) else None

    def text(self) -> str:
        """Return the invariant in words."""
        return f"unit norm along dim {self.dim}"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether the norms are one."""
        import torch

        return _are_one(torch.linalg.vector_norm(tensor, dim=self.dim))

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return vectors of length one; one of length zero stays as it was drawn."""
        import torch

        lengths = torch.linalg.vector_norm(changed, dim=self.dim, keepdim=True)
        divides = (lengths > 0) & lengths.isfinite()
        return torch.where(divides, changed / lengths, own)

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether this many norms would not be one by luck."""
        return _is_sure_of_rows(first, self.dim, num_draws)


class Sorted(Along):
    """Elements along a dimension never fall, or never rise."""

    kind: Literal["sorted"] = "sorted"
    is_descending: bool

    @classmethod
    def suspected(cls, first: torch.Tensor, dim: int) -> Sorted | None:
        """Return the invariant where a first draw is sorted along a dimension."""
        if first.shape[dim] < 3:
            return None
        rows = some_rows(first, dim)
        for is_descending in (False, True):
            found = cls(dim=dim, is_descending=is_descending)
            if cls(dim=1, is_descending=is_descending).holds(rows, rows) and found.holds(
                first, first
            ):
                return found
        return None

    def text(self) -> str:
        """Return the invariant in words."""
        return f"{'descending' if self.is_descending else 'ascending'} along dim {self.dim}"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether the tensor is sorted."""
        length = tensor.shape[self.dim]
        before = tensor.narrow(self.dim, 0, length - 1)
        later = tensor.narrow(self.dim, 1, length - 1)
        return bool((before >= later if self.is_descending else before <= later).all())

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the rows sorted."""
        if self.holds(changed, changed):
            return changed
        return changed.sort(dim=self.dim, descending=self.is_descending).values

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether rows of differing values would not be in order by luck."""
        length = first.shape[self.dim]
        ends = first.select(self.dim, 0) != first.select(self.dim, length - 1)
        rows = int(ends.sum()) * num_draws
        if is_few_valued(first) and length > 2:
            return rows >= FEW_ROWS
        return rows * math.lgamma(length + 1) >= MIN_EVIDENCE


def _rounding(tensor: torch.Tensor) -> float:
    """Return the largest difference of mirrored elements that rounding explains."""
    import torch

    return ROUNDINGS * torch.finfo(tensor.dtype).eps * float(tensor.abs().max())


def _sign(tensor: torch.Tensor) -> Sign:
    least = float(tensor.min())
    return "positive" if least > 0 else "non-negative" if least == 0 else None


def _are_one(sums: torch.Tensor) -> bool:
    import torch

    if not sums.is_floating_point():
        return bool((sums == 1).all())
    tolerance = 1e-4 if sums.dtype in (torch.float32, torch.float64) else 1e-2
    return bool(((sums - 1).abs() <= tolerance).all())


def _is_sure_of_rows(first: torch.Tensor, dim: int, num_draws: int) -> bool:
    rows = first.numel() // first.shape[dim] * num_draws
    return rows >= (FEW_ROWS if is_few_valued(first) else 2)
