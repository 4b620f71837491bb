"""Invariants of elements that are the same in every draw: all of a tensor, or some."""

from __future__ import annotations

import base64
import math
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from cudal1.harness.inputs.invariants import MIN_EVIDENCE, Invariant, Number, shown

if TYPE_CHECKING:
    import torch

LUCKY_SHARE = 1e-3
"""Share of elements that may be equal in two draws by luck, at most, where others count as equal in
all draws."""
FEWEST = 1e-6
"""Share of elements below which agreement of two draws is ignored. Of numbers from `torch.rand`, of
which there are 2^24, luck makes a sixteenth of it."""


class Fixed(Invariant):
    """The whole tensor is the same in every draw."""

    kind: Literal["fixed"] = "fixed"

    def text(self) -> str:
        """Return the invariant in words."""
        return "the same in every draw"

    @classmethod
    def suspected(cls, first: torch.Tensor, second: torch.Tensor) -> Fixed | None:
        """Return the invariant where two draws are the same."""
        return cls() if cls().holds(second, first) else None

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether the tensor is the one that was drawn."""
        import torch

        return torch.equal(tensor, drawn)

    def is_sure(self, first: torch.Tensor, num_draws: int) -> bool:
        """Return whether it is more than a whole number or two that are drawn alike by luck."""
        is_whole = not first.is_floating_point() or bool((first == first.round()).all())
        return not is_whole or first.numel() * (num_draws - 1) >= MIN_EVIDENCE

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the drawn tensor."""
        return own


class Kept(Invariant):
    """Some elements are the same in every draw: a padding, a column of ones."""

    kind: Literal["kept"] = "kept"
    shape: tuple[int, ...]
    """Shape of the mask, which is one long where all places along a dimension are alike."""
    packed: str
    """The mask: bits, compressed, in base 64."""
    count: int
    """Number of elements that are kept, of `total`."""
    total: int
    value: Number | None
    """Value of all kept elements; None where they differ."""

    @classmethod
    def suspected(
        cls, first: torch.Tensor, second: torch.Tensor, known: torch.Tensor | None
    ) -> Kept | None:
        """Return the elements that two draws agree in, besides those known to be the same."""
        same = first == second
        if known is not None:
            same &= ~known
        return cls._of(same, first) if int(same.sum()) > FEWEST * first.numel() else None

    @classmethod
    def _of(cls, same: torch.Tensor, first: torch.Tensor) -> Kept:
        values = first[same]
        is_one = bool((values == values[0]).all())
        count = int(same.sum())
        mask = _narrowed(same)
        return cls(
            shape=tuple(mask.shape),
            packed=_packed(mask),
            count=count,
            total=first.numel(),
            value=float(values[0]) if is_one else None,
        )

    def text(self) -> str:
        """Return the invariant in words."""
        what = "the same in every draw" if self.value is None else f"always {shown(self.value)}"
        return f"{self.count} of {self.total} elements {what}"

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Return whether the mask can be expanded to a shape."""
        pairs = zip(self.shape, shape, strict=False)
        return len(self.shape) == len(shape) and all(mine in (1, size) for mine, size in pairs)

    def holds(self, tensor: torch.Tensor, drawn: torch.Tensor) -> bool:
        """Return whether these elements are as they were drawn."""
        return not bool(((tensor != drawn) & self.outside(tensor.device)).any())

    def restored(self, changed: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Return the tensor with these elements as they were drawn."""
        import torch

        return torch.where(self.outside(changed.device), own, changed)

    def after(self, tensor: torch.Tensor, first: torch.Tensor) -> Kept | None:
        """Return the elements that equal the first draw's in this draw, too.

        None where many do not: then values are few, and elements agree by luck.
        """
        mask, same = self.outside(tensor.device), tensor == first
        lost = int((mask & ~same).sum())
        if lost == 0:
            return self
        left = mask & same
        if lost > LUCKY_SHARE * first.numel() or not bool(left.any()):
            return None
        return self._of(left.expand(first.shape), first)

    def outside(self, device: torch.device) -> torch.Tensor:
        """Return the mask of the kept elements; it expands to the tensor's shape."""
        return _unpacked(self.packed, self.shape).to(device)


def _narrowed(mask: torch.Tensor) -> torch.Tensor:
    """Return the mask, one long in each dimension along which all places are alike."""
    import torch

    for dim in range(mask.dim()):
        one = mask.narrow(dim, 0, 1)
        if torch.equal(one.expand(mask.shape), mask):
            mask = one
    return mask


def _packed(mask: torch.Tensor) -> str:
    import numpy as np

    bits = np.packbits(mask.cpu().numpy().reshape(-1))
    return base64.b64encode(zlib.compress(bits.tobytes())).decode()


@lru_cache(maxsize=64)
def _unpacked(packed: str, shape: tuple[int, ...]) -> torch.Tensor:
    import numpy as np
    import torch

    count = math.prod(shape)
    # a mask from the disk may be forged: no more than its size is unpacked
    content = zlib.decompressobj().decompress(base64.b64decode(packed), -(-count // 8) or 1)
    flat = np.unpackbits(np.frombuffer(content, dtype=np.uint8), count=count)
    return torch.from_numpy(flat.astype(np.bool_)).reshape(shape)
