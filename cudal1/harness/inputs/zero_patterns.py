"""Invariants of matrices: their zeros, and the values on their diagonal."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, Self

from cudal1.harness.inputs.invariants import MIN_EVIDENCE, Invariant, Number, shown

if TYPE_CHECKING:
    import torch

CHUNK = 1024
"""Rows of a matrix that are examined together."""


class Pattern(Invariant):
    """Matrices of one size have zeros in fixed places."""

    rows: int
    columns: int

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether tensors of a shape are matrices of the size."""
        return shape[-2:] == (self.rows, self.columns)

    @abstractmethod
    def outside(self, device: torch.device) -> torch.Tensor:
        """Return the mask of the elements that are always zero: (rows, columns)."""

    @abstractmethod
    def num_outside(self) -> int:
        """Return the number of elements of a matrix that are always zero."""

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether the zeros outside are more than the share of zeros inside explains."""
        outside, matrix = self.num_outside(), self.rows * self.columns
        batch = first.numel() // matrix
        inside = (matrix - outside) * batch
        zeros = inside - int(first.count_nonzero())
        share = (zeros + 1) / (inside + 2)
        return _expected(outside * batch * num_draws, share) >= MIN_EVIDENCE


class Band(Pattern):
    """Matrices are zero outside a band around the diagonal: triangular, diagonal, banded."""

    kind: Literal["band"] = "band"
    below: int
    """Used diagonals below the main one; `rows - 1`: all; -1: not even the main one."""
    above: int
    """Used diagonals above the main one; `columns - 1`: all; -1: not even the main one."""

    @classmethod
    def suspected(cls, first: torch.Tensor, second: torch.Tensor) -> Band | None:
        """Return the band that two draws lie in; None where it is the whole matrix."""
        used = _used(first, second)
        found = None if used is None else cls._of(used)
        if found is None:
            return None
        # most elements that are zero in both draws lie outside; else the pattern is another, as a
        # padding
        zeros = int(((first == 0) & (second == 0)).sum())
        batch = first.numel() // (found.rows * found.columns)
        return found if 2 * found.num_outside() * batch >= zeros else None

    @classmethod
    def _of(cls, used: torch.Tensor) -> Band | None:
        rows, columns = used.shape
        if bool(used[0, -1] & used[-1, 0]) or not bool(used.any()):
            return None
        above = _least(-rows, columns - 1, lambda d: not bool(used.triu(d + 1).any()))
        below = _least(-columns, rows - 1, lambda d: not bool(used.tril(-d - 1).any()))
        return cls(rows=rows, columns=columns, below=below, above=above)

    def text(self) -> str:
        """Return the invariant in words."""
        has_all_below, has_all_above = self.below >= self.rows - 1, self.above >= self.columns - 1
        if (self.below, self.above) == (0, 0):
            return "diagonal"
        if has_all_below and self.above in (0, -1):
            return "lower triangular" if self.above == 0 else "strictly lower triangular"
        if has_all_above and self.below in (0, -1):
            return "upper triangular" if self.below == 0 else "strictly upper triangular"
        said: list[str] = []
        if not has_all_above:
            said.append(f"where column - row > {self.above}")
        if not has_all_below:
            said.append(f"where column - row < {-self.below}")
        return f"zero {' and '.join(said)}"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether all elements outside the band are zero."""
        import torch

        return torch.equal(tensor, self._cut(tensor))

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the tensor with zeros outside the band."""
        return self._cut(changed)

    def _cut(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.tril(self.above).triu(-self.below)

    def after(self, tensor: torch.Tensor, first: torch.Tensor) -> Self | None:
        """Return the band, or the wider one that this draw needs."""
        if self.holds(tensor, first):
            return self
        wider = self._of(_matrix(tensor != 0))
        if wider is None:
            return None
        return self.model_copy(
            update={"below": max(self.below, wider.below), "above": max(self.above, wider.above)}
        )

    def outside(self, device: torch.device) -> torch.Tensor:
        """Return the mask of the elements that are always zero: (rows, columns)."""
        import torch

        return ~self._cut(torch.ones(self.rows, self.columns, dtype=torch.bool, device=device))

    def num_outside(self) -> int:
        """Return the number of elements of a matrix that are always zero."""
        inside = 0
        for row in range(self.rows):
            last = min(self.columns - 1, row + self.above)
            inside += max(0, last - max(0, row - self.below) + 1)
        return self.rows * self.columns - inside


class Blocks(Pattern):
    """Matrices are zero outside blocks along the diagonal."""

    kind: Literal["blocks"] = "blocks"
    cuts: tuple[tuple[int, int], ...]
    """Row and column at which each block but the first begins."""

    @classmethod
    def suspected(cls, first: torch.Tensor, second: torch.Tensor) -> Blocks | None:
        """Return the finest blocks that two draws lie in; None where there is one block."""
        used = _used(first, second)
        if used is None or bool(used[0, -1] | used[-1, 0]):
            return None
        rows, columns = used.shape
        cuts = _cuts(used)
        return cls(rows=rows, columns=columns, cuts=tuple(sorted(cuts))) if cuts else None

    def text(self) -> str:
        """Return the invariant in words."""
        return f"block diagonal, {len(self.cuts) + 1} blocks"

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether all elements outside the blocks are zero."""
        return not bool((tensor.ne(0) & self.outside(tensor.device)).any())

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the tensor with zeros outside the blocks."""
        return changed.masked_fill(self.outside(changed.device), 0)

    def after(self, tensor: torch.Tensor, first: torch.Tensor) -> Self | None:
        """Return the blocks without the cuts that this draw joins."""
        if self.holds(tensor, first):
            return self
        cuts = tuple(cut for cut in self.cuts if cut in _cuts(_matrix(tensor != 0)))
        return self.model_copy(update={"cuts": cuts}) if cuts else None

    def outside(self, device: torch.device) -> torch.Tensor:
        """Return the mask of the elements that are always zero: (rows, columns)."""
        import torch

        mask = torch.ones(self.rows, self.columns, dtype=torch.bool, device=device)
        for (top, left), (bottom, right) in self._corners():
            mask[top:bottom, left:right] = False
        return mask

    def num_outside(self) -> int:
        """Return the number of elements of a matrix that are always zero."""
        sizes = (
            (bottom - top) * (right - left) for (top, left), (bottom, right) in self._corners()
        )
        return self.rows * self.columns - sum(sizes)

    def _corners(self) -> list[tuple[tuple[int, int], tuple[int, int]]]:
        begins = [(0, 0), *self.cuts]
        return list(zip(begins, [*self.cuts, (self.rows, self.columns)], strict=True))


class Diagonal(Invariant):
    """The main diagonal of each matrix holds one value, the same in every draw."""

    kind: Literal["diagonal"] = "diagonal"
    value: Number

    @classmethod
    def suspected(cls, first: torch.Tensor) -> Diagonal | None:
        """Return the invariant where the first draw has one value on the diagonal."""
        if not _is_matrix(first):
            return None
        found = cls(value=float(first.diagonal(dim1=-2, dim2=-1).flatten()[0]))
        return found if found.holds(first, first) else None

    def text(self) -> str:
        """Return the invariant in words."""
        return f"always {shown(self.value)} on the diagonal"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether a shape is that of matrices."""
        return len(shape) >= 2

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether the diagonal has the value."""
        return bool((tensor.diagonal(dim1=-2, dim2=-1) == self.value).all())

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the tensor with the value on its diagonal."""
        changed = changed.clone()
        changed.diagonal(dim1=-2, dim2=-1).copy_(own.diagonal(dim1=-2, dim2=-1))
        return changed

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether this many elements are unlikely to be equal by luck."""
        on_it = first.diagonal(dim1=-2, dim2=-1).numel()
        others = float((first == self.value).double().mean())
        return _expected(on_it * num_draws, others) >= MIN_EVIDENCE


def _is_matrix(tensor: torch.Tensor) -> bool:
    return tensor.dim() >= 2 and min(tensor.shape[-2:]) >= 2


def _used(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor | None:
    """Return the matrix of elements that are not zero in either draw, in any of a batch."""
    if not _is_matrix(first):
        return None
    # one matrix of a batch is enough to see that there is no pattern
    one = first.reshape(-1, *first.shape[-2:])[0] if first.is_contiguous() else first
    if one.dim() == 2 and bool((one[0, -1] != 0) & (one[-1, 0] != 0)):
        return None
    return _matrix((first != 0) | (second != 0))


def _matrix(used: torch.Tensor) -> torch.Tensor:
    return used.flatten(0, -3).any(dim=0) if used.dim() > 2 else used


def _least(low: int, high: int, is_enough: Callable[[int], bool]) -> int:
    """Return the smallest number that is enough; the last one always is."""
    while low < high:
        middle = (low + high) // 2
        if is_enough(middle):
            high = middle
        else:
            low = middle + 1
    return low


def _cuts(used: torch.Tensor) -> set[tuple[int, int]]:
    """Return the starts of blocks: rows and columns with zeros right above and left below."""
    import torch

    rows, columns = used.shape
    up = torch.arange(1, columns + 1, dtype=torch.int32, device=used.device)
    ends: list[torch.Tensor] = []
    begins: list[torch.Tensor] = []
    for part in used.split(CHUNK):
        ends.append((part * up).amax(dim=1))  # 0 for a row of zeros
        begins.append(columns - (part * up.flip(0)).amax(dim=1))  # `columns` for a row of zeros
    end = torch.cat(ends).cummax(dim=0).values.tolist()
    begin = torch.cat(begins).flip(0).cummin(dim=0).values.flip(0).tolist()
    return {
        (row, end[row - 1]) for row in range(1, rows) if 0 < end[row - 1] <= begin[row] < columns
    }


def _expected(count: int, share: float) -> float:
    """Return the evidence of `count` events of probability `share` each, as -ln."""
    return math.inf if share <= 0 else -count * math.log(min(1.0, share))
