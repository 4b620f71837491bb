"""Whether an output is the answer: the three-part tolerance, by dtype and precision class.

All comparisons fail closed: whatever is not provably within its bound is wrong, NaN included.
Table and reasons: harness.md 7.2.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Tolerance:
    """Bounds for floating-point outputs; y is the oracle's output and s its root mean square."""

    relative_l2: float
    """On |x - y| over |y|, whole tensor."""
    scaled_absolute: float
    """Per element: |x - y| may be this times s, plus `relative` times |y|."""
    relative: float


@dataclass(frozen=True)
class ReferenceError:
    """How far the reference itself is from the oracle: an honest candidate may be as far."""

    relative_l2: float
    element: float
    """Largest |x - y| / (s + |y|)."""


ORDER = (PrecisionClass.STRICT, PrecisionClass.TF32, PrecisionClass.HALF)
"""Tightest first."""

_FLOAT32 = {
    PrecisionClass.STRICT: Tolerance(2e-6, 1e-5, 1e-5),
    PrecisionClass.TF32: Tolerance(1e-3, 2e-3, 2e-3),
    PrecisionClass.HALF: Tolerance(2e-3, 4e-3, 4e-3),
}
_BY_DTYPE = {
    "float64": dict.fromkeys(ORDER, Tolerance(1e-12, 1e-11, 1e-9)),
    "float32": _FLOAT32,
    "float16": dict.fromkeys(ORDER, Tolerance(2e-3, 2e-3, 2e-3)),
    "bfloat16": dict.fromkeys(ORDER, Tolerance(1e-2, 1e-2, 1.6e-2)),
}
ERROR_MARGIN = 4.0
"""A candidate may be so many times farther from the oracle than the reference is."""


@dataclass(frozen=True)
class Comparison:
    """One output tensor against the oracle's."""

    relative_l2: float
    """Infinite when it cannot be computed."""
    worst: dict[PrecisionClass, float]
    """Largest error over its bound in each class; above 1 fails."""
    mismatch: str | None
    """Where it is farthest off, when it fails the loosest class or has a wrong kind of value."""

    def meets(self, precision: PrecisionClass) -> bool:
        """Whether the output counts as correct in that class."""
        return self.worst[precision] <= 1.0


def compare(
    output: torch.Tensor, answer: torch.Tensor, reference_error: ReferenceError
) -> Comparison:
    """Compare a candidate's output (its own dtype) with the oracle's answer (maybe float64).

    Integers and booleans must be equal. Infinities and NaN must stand where the answer's stand.
    """
    import torch

    dtype = str(output.dtype).removeprefix("torch.")
    if dtype not in _BY_DTYPE:
        equal = torch.equal(output, answer.to(output.dtype))
        return _exact(equal, output, answer.to(output.dtype))
    exact = answer.dtype == torch.float64
    x, y = (output.double(), answer) if exact else (output, answer)
    finite = torch.isfinite(y)
    if not bool(finite.all()):
        same = torch.equal(torch.isfinite(x), finite) and torch.equal(
            torch.nan_to_num(x[~finite], nan=7.0), torch.nan_to_num(y[~finite], nan=7.0)
        )
        if not same:
            return _exact(False, x, y)
        x, y = x[finite], y[finite]
    if y.numel() == 0:
        return _exact(True, x, y)
    return _compare_floats(x, y, _BY_DTYPE[dtype], reference_error)


def _compare_floats(
    x: torch.Tensor,
    y: torch.Tensor,
    tolerances: dict[PrecisionClass, Tolerance],
    reference_error: ReferenceError,
) -> Comparison:
    """Compare finite answers; looser classes are looked at only when a tighter one fails."""
    difference, size = (x - y).abs(), y.abs()
    norm = float(size.norm())
    scale = norm / y.numel() ** 0.5
    relative_l2 = float(difference.norm()) / norm if norm > 0 else float(difference.max()) * 1e30
    worst: dict[PrecisionClass, float] = {}
    for precision in ORDER:
        tolerance = tolerances[precision]
        slack = ERROR_MARGIN * reference_error.element
        bound = size * max(tolerance.relative, slack) + (
            max(tolerance.scaled_absolute, slack) * scale + 1e-300
        )
        element = float((difference / bound).max())
        l2_bound = max(tolerance.relative_l2, ERROR_MARGIN * reference_error.relative_l2)
        score = max(element, relative_l2 / l2_bound)
        # max() passes a NaN on or hides it, by position: NaN in either part fails
        is_number = element == element and relative_l2 == relative_l2
        worst[precision] = score if is_number else math.inf
        if worst[precision] <= 1.0:
            break
    tightest_met = min(worst.values())
    full = {precision: worst.get(precision, tightest_met) for precision in ORDER}
    mismatch = None
    if full[ORDER[0]] > 1.0:
        place = int(difference.flatten().nan_to_num(nan=math.inf).argmax())
        got, wanted = float(x.flatten()[place]), float(y.flatten()[place])
        mismatch = f"element {place}: {got:.6g}, not {wanted:.6g}"
    return Comparison(relative_l2 if relative_l2 == relative_l2 else math.inf, full, mismatch)


def reference_error(reference: torch.Tensor, answer: torch.Tensor) -> ReferenceError:
    """How far the reference's own output is from the oracle's, over finite elements."""
    import torch

    if not reference.is_floating_point():
        return ReferenceError(0.0, 0.0)
    x, y = reference.double(), answer.double()
    finite = torch.isfinite(x) & torch.isfinite(y)
    x, y = x[finite], y[finite]
    if y.numel() == 0 or float(y.norm()) == 0:
        return ReferenceError(0.0, 0.0)
    difference = (x - y).abs()
    scale = float(y.square().mean().sqrt())
    return ReferenceError(
        float(difference.norm() / y.norm()), float((difference / (scale + y.abs())).max())
    )


def _exact(equal: bool, x: torch.Tensor, y: torch.Tensor) -> Comparison:
    if equal:
        return Comparison(0.0, dict.fromkeys(ORDER, 0.0), None)
    wrong = (x != y).flatten()
    place = int(wrong.int().argmax()) if wrong.numel() else 0
    said = f"element {place}: {x.flatten()[place].item()}, not {y.flatten()[place].item()}"
    return Comparison(float("inf"), dict.fromkeys(ORDER, float("inf")), said)
