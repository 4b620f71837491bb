"""Requirements on a reference's inputs and outputs: they must be sendable and comparable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cudal1.harness.inputs.draws import remedy
from cudal1.harness.shared.wire import DTYPES

if TYPE_CHECKING:
    import torch

    Tensors = list[torch.Tensor]


INACCURATE = 0.02
"""Relative error from its own float64 output above which a reference cannot tell right from
wrong."""


class RejectedError(Exception):
    """A problem was rejected; the message is the reason, in one line.

    `lasts` is true if the reason follows from the source, and not from the installation or the
    current conditions.
    """

    def __init__(self, reason: str, *, lasts: bool = True) -> None:
        super().__init__(reason)
        self.lasts = lasts


def tensor(value: Any, what: str, *, is_output: bool) -> torch.Tensor:
    """Return an input or an output as a tensor.

    Raises:
        RejectedError: it cannot be sent.
    """
    import torch

    do = remedy(value, is_output=is_output)
    if not isinstance(value, torch.Tensor):
        raise RejectedError(f"{what} is of type {type(value).__name__}, not a tensor; {do}")
    if value.layout is not torch.strided or value.is_nested or value.is_quantized:
        raise RejectedError(f"{what} is not a dense tensor, which alone can be judged; {do}")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in DTYPES:
        raise RejectedError(f"{what} is of {dtype}, which cannot be judged; {do}")
    if value.numel() == 0:
        raise RejectedError(f"{what} has no elements")
    return value


def require_values(outputs: Tensors) -> None:
    """Refuse outputs that hold nothing to compare."""
    if not outputs:
        raise RejectedError("forward returns nothing")
    extremes = [extreme for output in outputs for extreme in output.aminmax()]  # NaN if any is
    if not all(bool(extreme.isfinite()) for extreme in extremes):
        raise RejectedError("an output holds NaN or infinity")


def require_same_inputs(first: Tensors, drawn: Tensors) -> None:
    """Refuse inputs with a number, shape or dtype that is drawn: slots have one size."""
    if len(first) != len(drawn):
        raise RejectedError(
            f"the number of inputs changes from draw to draw ({len(first)}, then {len(drawn)}); "
            "return as many in every draw"
        )
    for place, (one, other) in enumerate(zip(first, drawn, strict=True)):
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            raise RejectedError(
                f"input {place} changes from draw to draw ({one.dtype} {tuple(one.shape)}, then "
                f"{other.dtype} {tuple(other.shape)}); draw one shape and type, and say with a "
                "mask or lengths what of it counts"
            )


def require_same_form(outputs: Tensors, others: Tensors) -> None:
    """Refuse outputs with a number, shape or dtype that depends on data: slots have one size."""
    if len(outputs) != len(others):
        raise RejectedError(
            f"the number of outputs changes with the inputs ({len(outputs)}, then {len(others)})"
        )
    for one, other in zip(outputs, others, strict=True):
        if one.shape != other.shape:
            raise RejectedError(
                f"the output's shape changes with the inputs ({tuple(one.shape)}, then "
                f"{tuple(other.shape)})"
            )
        if one.dtype != other.dtype:
            raise RejectedError(
                f"the output's dtype changes with the inputs ({one.dtype}, then {other.dtype})"
            )


def require_accuracy(off_by: float) -> None:
    """Refuse outputs that are mostly rounding errors, such as the mean of centred values.

    Args:
        off_by: their distance from the float64 outputs, relative to these.
    """
    if off_by > INACCURATE:
        raise RejectedError(
            f"the output is off by {min(off_by, 9.99):.0%} from the same in float64, "
            "so nothing can be told"
        )
