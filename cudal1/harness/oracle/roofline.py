"""Compute the physical floor under a call: what it must move and compute, over the device's peaks.

Threat: a time that no honest work can reach shows a hole in the clock without showing which hole.
So a claim below the floor is `invalid`, never a record. Everything here errs on the low side, since
a floor that is too high would turn honest candidates away. What counts, and why so little:

* **Inputs**: pieces of 32 bytes that move the output by more than any tolerance lets one forget.
  They are pieces of memory, however many views show them.
* **Outputs**: one element for each distinct value, since equal ones may share memory. An output
  that could be a view of an input is not written by the call: the worker only reads it, to store
  it. The worker reads as many constants in the empty burst, which is subtracted, so such an output
  counts negative.
* **Weights**: nothing. What is computed from them once is free, and it may be smaller.
* **FLOPs**: only of a reference that is one matrix product of unstructured operands, and half of
  them (Strassen; a product with its own transpose). Any other algebra may do with less.

The module is long because what counts as work and why it may count are one argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from cudal1.harness.device.ceilings import Peaks
from cudal1.harness.device.shortage import lacks_memory
from cudal1.harness.oracle.parts import flat_parts
from cudal1.harness.reference.reference_code import RefusalError
from cudal1.harness.shared.arrangement import Arrangement
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch

BELOW_FLOOR = 0.9
"""Share of the floor below which the time of a call is impossible (docs/timing.md#the-floor)."""
PIECE_BYTES = 32
"""Least number of bytes that memory is read in: a sector of a GPU; a CPU's line is two."""
FORGOTTEN = 5e-3
"""Share of the output's root mean square that the loosest tolerance might let a candidate leave
out: above every relative L2 bound of `correctness`."""
LEAST_FORGOTTEN = 1e-4
"""Least share of squared effects that is left out: rounding has effects, too."""
MOST_FORGOTTEN = 0.5
"""Share above which nothing counts: an output that its inputs hardly move says nothing about what
must be read."""
TOO_INEXACT = 1e-3
"""Relative L2 error of a reference against float64 above which nothing is certain: it widens the
reference's bounds."""
NUM_PROBES = 32
"""Number of elements of an output that are looked for in the inputs."""
CLOSE = 1e-4
"""Relative distance at which an element is taken for an input's."""
HALF_OF_FLOPS = 0.5
PRODUCTS = {"matmul": 0, "mm": 0, "bmm": 0, "linear": 0, "addmm": 1, "baddbmm": 1}
"""Functions that multiply matrices, each with the index of its first matrix argument."""
RESHAPES = {
    "t",
    "transpose",
    "permute",
    "view",
    "reshape",
    "flatten",
    "unsqueeze",
    "squeeze",
    "get",
    "size",
    "dim",
}
"""Functions that move no data; `get` is that of a property, such as `shape` or `mT`."""

Tensors = Sequence["torch.Tensor"]
Call = Callable[..., Any]


@dataclass(frozen=True)
class Work:
    """The work that one call cannot do without."""

    num_bytes: int
    """Bytes to read and to write."""
    num_flops: int
    lacked_memory: bool = False
    """True if the work may be more: there was too little memory to find out."""

    def floor_us(self, peaks: Peaks, precision: PrecisionClass) -> float:
        """Return the least time of one call, net of the harness's cost; 0 if nothing is certain."""
        computing_us = self.num_flops / peaks.flops_per_us(precision)
        return max(peaks.moving_us(self.num_bytes), computing_us)


NO_WORK = Work(0, 0)


def least_work(
    call: Call,
    draws: Sequence[Tensors],
    *,
    inexactness: float,
    code: AbstractContextManager[object] | None = None,
) -> Work:
    """Return the work that the reference's outputs for two draws of its inputs provably need.

    Args:
        call: the reference; it may change the tensors that it is given.
        draws: two sets of inputs of the problem's own.
        inexactness: relative L2 error of the reference against float64.
        code: surrounds whatever runs code of the reference.

    Raises:
        RefusalError: `code` raised it, because the reference raised an exception.
    """
    import torch

    if not inexactness <= TOO_INEXACT:
        return NO_WORK
    code = code or nullcontext()
    arrangement = Arrangement.of(draws[0])
    first, second = (arrangement.flat(inputs) for inputs in draws[:2])
    if first is None or second is None:
        return NO_WORK

    def called(*storages: torch.Tensor) -> Any:
        return call(*arrangement.of_storages(storages))

    with code, torch.no_grad():
        outputs = [_as_list(called(*(t.clone() for t in storages))) for storages in (first, second)]
    if not all(bool(torch.isfinite(t).all()) for group in outputs for t in group):
        return NO_WORK
    forgotten = forgettable(outputs)
    if forgotten > MOST_FORGOTTEN:
        return NO_WORK
    lacked_memory = False
    try:
        needed = read_bytes(called, (first, second), forgotten, code)
    except (RuntimeError, RefusalError) as error:  # an operator without a gradient, for one
        needed, lacked_memory = 0, lacks_memory(f"{type(error).__name__}: {error}")
    needed += written_bytes(outputs, draws[0])
    with code:
        num_flops = product_flops(call, draws[0])
    return Work(max(0, needed), num_flops, lacked_memory)


def forgettable(outputs: Sequence[Tensors]) -> float:
    """Return the share of the squared change between draws that could hide in a tolerance."""
    size = moved = 0.0
    for pair in zip(*outputs, strict=True):
        for one, other in flat_parts(*pair):
            one = one.double()
            size += float(one.square().sum())
            moved += float((one - other.double()).square().sum())
    return max(LEAST_FORGOTTEN, FORGOTTEN**2 * size / moved) if moved > 0 else 1.0


def read_bytes(
    call: Call, draws: Sequence[Tensors], forgotten: float, code: AbstractContextManager[object]
) -> int:
    """Return the number of bytes of its storages that a call must read.

    How far each piece of an input moves the output is its gradient times its change from one draw
    to the other. The pieces that move it least are left out, as many as make up the `forgotten`
    share of all squared effects. An input without a gradient (indices), or that never changes,
    counts nothing.

    Raises:
        RuntimeError: an operator has no gradient, or there is too little memory.
        RefusalError: the reference raises an exception where gradients are wanted.
    """
    import torch

    wanted = [i for i, t in enumerate(draws[0]) if t.is_floating_point() and t.numel()]
    if not wanted:
        return 0
    leaves = [t.detach().clone().requires_grad_(i in wanted) for i, t in enumerate(draws[0])]
    with code, torch.enable_grad():
        made = _as_list(call(*(t.clone() for t in leaves)))
        total = sum(((t * _signs(t)).sum() for t in made if t.requires_grad), torch.zeros(()))
        found = torch.autograd.grad(total, [leaves[i] for i in wanted], allow_unused=True)
    moves = [
        _by_piece(gradient, draws[0][i], draws[1][i])
        for i, gradient in zip(wanted, found, strict=True)
        if gradient is not None
    ]
    if not moves:
        return 0
    effects = torch.cat(moves).sort().values.cumsum(0)
    if not 0 < float(effects[-1]) < math.inf:
        return 0
    return int((effects > forgotten * effects[-1]).sum()) * PIECE_BYTES


def written_bytes(outputs: Sequence[Tensors], inputs: Tensors) -> int:
    """Return the bytes of fresh memory that the first draw's outputs take.

    An output that may be a view counts negative.

    Elements that no input changes may have been computed once, and count nothing.
    """
    import torch

    total, fresh = 0, list[torch.Tensor]()
    for output, other in zip(*outputs, strict=True):
        has_changed = output != other
        if bool(has_changed.any()) and may_be_view(output, inputs):
            total -= output.numel() * output.element_size()
        else:
            fresh.append(output[has_changed])
    for dtype in {t.dtype for t in fresh}:
        group = torch.cat([t for t in fresh if t.dtype is dtype])
        total += group.unique().numel() * group.element_size()
    return total


def may_be_view(output: torch.Tensor, inputs: Tensors) -> bool:
    """Return whether each of the output's most telling elements is also an input's, or nearly.

    A tensor lies in one piece of memory, so a single element that no input holds is proof enough.
    The largest and the smallest are the least likely to be there by chance.
    """
    import torch

    values = output.flatten()
    if output.dtype is torch.bool:
        values = values.byte()  # booleans have no order
    count = min(NUM_PROBES // 2, values.numel())
    probes = torch.cat([values.topk(count).values, values.topk(count, largest=False).values])
    first, missing = probes[:1].double(), probes.double().unique()
    held = [tensor for tensor in inputs if tensor.numel()]
    if not any(bool(_held(tensor, first).all()) for tensor in held):
        return False  # as for most outputs
    for tensor in held:
        missing = missing[~_held(tensor, missing)]
        if not missing.numel():
            return True
    return False


def _held(tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return which of some values, in ascending order, are elements of a tensor, or nearly.

    The values that an element is close to lie beside each other, from a first to a last one.
    """
    import torch

    found, close = torch.zeros_like(values, dtype=torch.bool), CLOSE * values.abs()
    lows, highs = values - close, values + close
    for (part,) in flat_parts(tensor):
        elements = part.double()
        firsts = torch.searchsorted(highs, elements)
        ends = torch.searchsorted(lows, elements, right=True)
        is_close = firsts < ends
        both = torch.stack([firsts[is_close], ends[is_close]])
        for first, end in both.unique(dim=1).T.tolist():
            found[first:end] = True
        if bool(found.all()):
            break
    return found


def product_flops(call: Call, inputs: Tensors) -> int:
    """Return half of the FLOPs of a reference that is one matrix product and nothing else, else 0.

    A mode watches the reference as it calls PyTorch. `torch.utils.flop_counter` sees every
    reference's operators, but imports the compiler, which takes a second, to count what one line
    does.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    seen: list[_Product | None] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            result = func(*args, **(kwargs or {}))
            name = str(getattr(func, "__name__", func)).strip("_")
            if name in PRODUCTS and not kwargs and not seen:
                left, right = args[PRODUCTS[name] : PRODUCTS[name] + 2]
                seen.append(_Product(left, right, 2 * result.numel() * left.shape[-1]))
            elif name not in RESHAPES:
                seen.append(None)
            return result

    given = [t.clone() for t in inputs]
    with torch.no_grad(), Watch():
        call(*given)
    product = seen[0] if len(seen) == 1 else None
    if product is None:
        return 0
    counts = _is_unstructured(product.left) and _is_unstructured(product.right)
    return int(product.num_flops * HALF_OF_FLOPS) if counts else 0


class _Product(NamedTuple):
    """A product of matrices."""

    left: torch.Tensor
    right: torch.Tensor
    num_flops: int


def _is_unstructured(operand: torch.Tensor) -> bool:
    """Return whether most elements differ: no zeros, ones, bands or repetitions to exploit.

    Integers are multiplied faster than any float with a measured ceiling, so they count nothing.
    """
    is_float = operand.is_floating_point() and operand.element_size() >= 4
    return is_float and 2 * operand.unique().numel() >= operand.numel()


def _by_piece(gradient: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the squared effect of each piece of a storage."""
    import torch

    per_piece = max(1, PIECE_BYTES // gradient.element_size())
    found: list[torch.Tensor] = []
    for slope, mine, theirs in flat_parts(gradient, one, other):  # whole pieces, but the last
        effects = (slope * (mine - theirs)).double().square()
        padded = torch.nn.functional.pad(effects, (0, -len(effects) % per_piece))
        found.append(padded.view(-1, per_piece).sum(1))
    return torch.cat(found)


def _signs(tensor: torch.Tensor) -> torch.Tensor:
    """Return +1 or -1 for each element, at random, so that contributions do not cancel."""
    import torch

    bits = torch.randint(2, tensor.shape, dtype=torch.int8, device=tensor.device)
    return bits.mul_(2).sub_(1).to(tensor.dtype)


def _as_list(result: Any) -> list[torch.Tensor]:
    return list(result) if isinstance(result, tuple | list) else [result]
