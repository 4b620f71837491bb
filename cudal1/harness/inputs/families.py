"""Kinds of inputs: the problem's own, and changed ones that its own generator would never draw.

Each is a function of one tensor; integer tensors (indices, masks) stay as they are drawn. Strides
and shared memory stay, too (`arrangement`): a storage is changed once, and all its views with it.
`oracle` decides whether a family says anything about a problem, from the reference's outputs.

Two kinds are left out (docs/checks.md#inputs), because honest candidates differ on them:

* Denormal numbers: kernels may flush them to zero (`-ftz=true`, CPU threads that set it). Among
  numbers of ordinary size they are far below any bound; alone they would refuse a kernel that
  flushes.
* Infinities and NaN as inputs: the maximum of a NaN, zero times infinity, a clamp of NaN differ
  between PyTorch's own CPU and CUDA operators. Every input is checked for outputs that hold such
  values where the answer holds none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

OWN = "own"
"""The problem's own inputs, unchanged."""
Change = Callable[["torch.Tensor"], "torch.Tensor"]
SPREAD = 3.0
"""Decades up and down over which magnitudes are spread inside a tensor."""
AMPLIFIED, AMPLIFIED_SHARE = 8.0, 0.25
"""Factor by which tensors of a state dict are amplified, and the share of tensors that are."""
NUDGE = 2e-6
"""Relative change of an input that the strict class allows."""


def change_inputs(tensors: list[torch.Tensor], family: str) -> list[torch.Tensor]:
    """Return the tensors of a draw as a family changes them."""
    change = FAMILIES[family]
    return [
        (change(tensor) if tensor.is_floating_point() else tensor).contiguous()
        for tensor in tensors
    ]


def nudged(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with an honest candidate's rounding error; floats become float64."""
    import torch

    if not tensor.is_floating_point():
        return tensor
    factor = torch.empty_like(tensor, dtype=torch.float64).uniform_(1 - NUDGE, 1 + NUDGE)
    return tensor.double() * factor


def changed_weight(tensor: torch.Tensor) -> torch.Tensor:
    """Return another weight of the same kind: signs stay, so that variances stay positive.

    Constant tensors (gains of one, biases and means of zero) get values of their own: otherwise a
    candidate that leaves them out would pass. Some tensors are amplified, by a power of two so that
    nothing rounds. That reveals code that is safe for small weights only (an unguarded exponential,
    half precision).
    """
    import torch

    if not tensor.is_floating_point() or tensor.numel() == 0:
        return tensor.clone()
    changed = tensor * torch.empty_like(tensor).uniform_(0.5, 1.5)
    if bool((tensor == tensor.flatten()[0]).all()):
        changed += torch.empty_like(tensor).uniform_(0.05, 0.25)
    return changed * AMPLIFIED if float(torch.rand(())) < AMPLIFIED_SHARE else changed


def _scaled(factor: float) -> Change:
    return lambda tensor: tensor * factor


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor + 2.0


def _small_integers(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.mul(1.5).round().clamp(-2, 2)


def _sparse(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor * (torch.rand_like(tensor, dtype=torch.float32) < 0.1).to(tensor.dtype)


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """Spread magnitudes: half-precision sums and careless orders lose the small values."""
    import torch

    decades = torch.empty_like(tensor, dtype=torch.float32).uniform_(-SPREAD, SPREAD)
    return tensor * (10.0**decades).to(tensor.dtype)


def _ties(tensor: torch.Tensor) -> torch.Tensor:
    """Put every value twice, side by side: a maximum is never alone, a sort never strict."""
    if tensor.dim() == 0:
        return tensor
    return tensor[..., ::2].repeat_interleave(2, dim=-1)[..., : tensor.shape[-1]]


def _alternating(tensor: torch.Tensor) -> torch.Tensor:
    """Alternate signs along a row, whatever the generator's: no sum stays one-sided."""
    import torch

    if tensor.dim() == 0:
        return tensor
    signs = 1.0 - 2.0 * (torch.arange(tensor.shape[-1], device=tensor.device) % 2)
    return tensor.abs() * signs.to(tensor.dtype)


def _rows_alike(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand_as(tensor) if tensor.dim() > 1 else tensor


def _one_row_large(tensor: torch.Tensor) -> torch.Tensor:
    """Make one random row of the batch large: a probe of the other rows sees nothing."""
    import torch

    if tensor.dim() < 2 or tensor.shape[0] == 0:
        return tensor
    changed = tensor.clone()
    changed[int(torch.randint(tensor.shape[0], ()))] *= 100.0
    return changed


def _one_element_large(tensor: torch.Tensor) -> torch.Tensor:
    """Make one random element large: a probe of other elements sees nothing.

    In place of a zero, which a diagonal matrix keeps, the largest element of its row is changed.
    """
    import torch

    if tensor.numel() == 0:
        return tensor
    changed = tensor.clone(memory_format=torch.contiguous_format)
    share = int(tensor.count_nonzero()) / tensor.numel()
    size = 100.0 * tensor.abs().mean() / max(share, 1e-9)
    rows = changed.view(-1, tensor.shape[-1] if tensor.dim() else 1)
    row, place = divmod(int(torch.randint(tensor.numel(), ())), rows.shape[1])
    if not bool(rows[row, place]):
        place = int(rows[row].abs().argmax())
    element = rows[row, place]
    element.copy_(torch.where(element > 0, -size, size))
    return changed


def _mixed_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Make every row of the batch of another kind."""
    import torch

    if tensor.dim() < 2:
        return tensor
    kinds = torch.tensor([1.0, -1.0, 30.0, 0.03, 0.0], dtype=tensor.dtype)
    rows = tensor.shape[0]
    picked = kinds[torch.randint(len(kinds), (rows,))]
    if rows:  # zeros in all rows test little
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
    "spread": _spread,
    "ties": _ties,
    "alternating": _alternating,
    "rows_alike": _rows_alike,
    "mixed_rows": _mixed_rows,
    "one_row_large": _one_row_large,
    "one_element_large": _one_element_large,
}
