"""Kinds of inputs: the problem's own, and changed ones that its own generator would never draw.

Each is a function of one tensor; integer tensors (indices, masks) stay as they are drawn. Whether a
family says anything about a problem is decided by `oracle`, from what the reference does on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

OWN = "own"
"""The problem's own inputs, as they are drawn."""
Change = Callable[["torch.Tensor"], "torch.Tensor"]


def change_inputs(tensors: list[torch.Tensor], family: str) -> list[torch.Tensor]:
    """The tensors of a draw as this family has them."""
    change = FAMILIES[family]
    return [
        (change(tensor) if tensor.is_floating_point() else tensor).contiguous()
        for tensor in tensors
    ]


def changed_weight(tensor: torch.Tensor) -> torch.Tensor:
    """Another weight of the same kind: signs stay, so that variances stay positive.

    Constant tensors (gains of one, biases and means of zero) get values of their own, or a
    candidate that leaves them out would never show.
    """
    import torch

    if not tensor.is_floating_point() or tensor.numel() == 0:
        return tensor.clone()
    changed = tensor * torch.empty_like(tensor).uniform_(0.5, 1.5)
    if bool((tensor == tensor.flatten()[0]).all()):
        changed += torch.empty_like(tensor).uniform_(0.05, 0.25)
    return changed


def _scaled(factor: float) -> Change:
    return lambda tensor: tensor * factor


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor + 2.0


def _small_integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mul(1.5).round().clamp(-2, 2)


def _sparse(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor * (torch.rand_like(tensor, dtype=torch.float32) < 0.1).to(tensor.dtype)


def _rows_alike(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand_as(tensor) if tensor.dim() > 1 else tensor


def _one_row_large(tensor: torch.Tensor) -> torch.Tensor:
    """A batch that looks harmless wherever it is probed but in one place."""
    import torch

    if tensor.dim() < 2 or tensor.shape[0] == 0:
        return tensor
    changed = tensor.clone()
    changed[int(torch.randint(tensor.shape[0], ()))] *= 100.0
    return changed


def _mixed_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Every row of the batch of another kind."""
    import torch

    if tensor.dim() < 2:
        return tensor
    kinds = torch.tensor([1.0, -1.0, 30.0, 0.03, 0.0], dtype=tensor.dtype)
    rows = tensor.shape[0]
    picked = kinds[torch.randint(len(kinds), (rows,))]
    if rows:  # zeros everywhere say little
        picked[int(torch.randint(rows, ()))] = kinds[int(torch.randint(len(kinds) - 1, ()))]
    return tensor * picked.view(-1, *([1] * (tensor.dim() - 1)))


FAMILIES: dict[str, Change] = {
    OWN: lambda tensor: tensor,
    "negated": _scaled(-1.0),
    "large": _scaled(100.0),
    "small": _scaled(0.01),
    "shifted": _shifted,
    "integers": _small_integers,
    "sparse": _sparse,
    "rows_alike": _rows_alike,
    "mixed_rows": _mixed_rows,
    "one_row_large": _one_row_large,
}
