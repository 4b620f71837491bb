"""Whether an output is the answer: the three-part tolerance, by dtype and precision class.

All comparisons fail closed: whatever is not provably within its bound is wrong, NaN included.
The table: docs/protocol.md, "What counts as correct".
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
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
    """Infinite where it cannot be told: the oracle's answer is 0 everywhere or finite elsewhere."""
    element: float
    """Largest |x - y| / (s + |y|)."""
    others: tuple[torch.Tensor, ...] = field(default=(), compare=False)
    """Of integers and booleans: more answers, each as right as the oracle's, element by element."""

    def at_most(self, limit: float) -> ReferenceError:
        """The same, no part of it above `limit`."""
        return replace(
            self, relative_l2=min(self.relative_l2, limit), element=min(self.element, limit)
        )

    def larger(self, other: ReferenceError) -> ReferenceError:
        """The worse of two, part by part."""
        return ReferenceError(
            max(self.relative_l2, other.relative_l2), max(self.element, other.element),
            self.others + other.others,
        )  # fmt: skip


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
    """Largest error over its bound in each class, or an upper bound of it; above 1 fails."""
    mismatch: str | None
    """Where it is farthest off, when it fails the loosest class or has a wrong kind of value."""

    def meets(self, precision: PrecisionClass) -> bool:
        """Whether the output counts as correct in that class."""
        return self.worst[precision] <= 1.0


def compare(
    output: torch.Tensor, answer: torch.Tensor, reference_error: ReferenceError
) -> Comparison:
    """Compare a candidate's output (its own dtype) with the oracle's answer (maybe float64).

    Integers and booleans must be equal, each to the answer's or to one of `others`: a tie, or a
    half that is rounded, falls to either side as numbers before it were rounded. Infinities and NaN
    must stand where the answer's stand. Every element is held to its bound, so that no separate cap
    on outliers is needed.
    """
    import torch

    dtype = str(output.dtype).removeprefix("torch.")
    if dtype not in _BY_DTYPE:
        expected = answer.to(output.dtype)
        for other in reference_error.others:
            expected = torch.where(output == other, output, expected)
        return _exact(torch.equal(output, expected), output, expected)
    work = torch.float64 if answer.dtype == torch.float64 else torch.float32
    x, y = output.to(work), answer.to(work)
    if not math.isfinite(float(y.norm())):
        finite = torch.isfinite(y)
        same = torch.equal(torch.isfinite(x), finite) and torch.equal(
            torch.nan_to_num(x[~finite], nan=7.0), torch.nan_to_num(y[~finite], nan=7.0)
        )
        if not same:
            return _exact(False, x, y)
        x, y = x[finite].double(), y[finite].double()
    if y.numel() == 0:
        return _exact(True, x, y)
    difference, size = (x - y).abs_(), y.abs()
    norm = float(size.norm())
    scale = norm / y.numel() ** 0.5
    off = float(difference.norm())
    relative_l2 = 0.0 if off == 0 else off / norm if norm > 0 else math.inf
    worst: dict[PrecisionClass, float] = {}
    score = float("inf")
    for precision, tolerance in _BY_DTYPE[dtype].items():
        if not score <= 1.0:  # what meets a class meets the looser ones
            score = _score(difference, size, scale, relative_l2, reference_error, tolerance)
        worst[precision] = score
    mismatch = None
    if not worst[PrecisionClass.STRICT] <= 1.0:
        place = int(torch.nan_to_num(difference, nan=float("inf")).argmax())
        found, expected = float(x.flatten()[place]), float(y.flatten()[place])
        mismatch = f"element {place}: {found:.6g}, not {expected:.6g}"
    return Comparison(relative_l2, worst, mismatch)


def agree(
    outputs_NX: torch.Tensor, answers_NX: torch.Tensor, reference_error: ReferenceError,
    precision: PrecisionClass,
) -> bool:  # fmt: skip
    """Whether N outputs meet a class, each by itself, in one look: what `compare` would say.

    True only when it would say so of all; infinities and NaN are left to `compare`.
    """
    dtype = str(outputs_NX.dtype).removeprefix("torch.")
    tolerance = _BY_DTYPE.get(dtype, {}).get(precision)
    if tolerance is None:
        return bool(outputs_NX.equal(answers_NX.to(outputs_NX.dtype)))
    count = len(outputs_NX)
    x, y = outputs_NX.reshape(count, -1).float(), answers_NX.reshape(count, -1).float()
    if dtype == "float64":
        x, y = outputs_NX.reshape(count, -1), answers_NX.reshape(count, -1)
    difference, size = (x - y).abs_(), y.abs()
    norm = size.norm(dim=1, keepdim=True)
    slack = ERROR_MARGIN * reference_error.element
    absolute = max(tolerance.scaled_absolute, slack) / y.shape[1] ** 0.5
    bound = size.mul_(max(tolerance.relative, slack)).add_(norm * absolute).clamp_min_(1e-37)
    l2_bound = max(tolerance.relative_l2, ERROR_MARGIN * reference_error.relative_l2) * norm
    within = (difference <= bound).all() & (difference.norm(dim=1, keepdim=True) <= l2_bound).all()
    # a bound that is not finite bounds nothing
    return bool(within & norm.isfinite().all())


def _score(
    difference: torch.Tensor, size: torch.Tensor, scale: float, relative_l2: float,
    reference_error: ReferenceError, tolerance: Tolerance,
) -> float:  # fmt: skip
    """The largest error over its bound; infinite when any part of it is NaN."""
    slack = ERROR_MARGIN * reference_error.element
    absolute = max(tolerance.scaled_absolute, slack) * scale
    bound = (size * max(tolerance.relative, slack)).add_(absolute).clamp_min_(1e-37)
    element = float((difference / bound).max())  # NaN anywhere makes the maximum NaN
    l2_bound = max(tolerance.relative_l2, ERROR_MARGIN * reference_error.relative_l2)
    score = element if not element <= relative_l2 / l2_bound else relative_l2 / l2_bound
    return score if score == score else float("inf")


def reference_error(reference: torch.Tensor, answer: torch.Tensor) -> ReferenceError:
    """How far the reference's own output is from the oracle's; both finite in the same places."""
    import torch

    if not reference.is_floating_point():
        return ReferenceError(0.0, 0.0)
    x, y = reference.double(), answer.double()
    finite = torch.isfinite(y)
    if not torch.equal(torch.isfinite(x), finite):
        return ReferenceError(math.inf, math.inf)
    x, y = x[finite], y[finite]
    if torch.equal(x, y):
        return ReferenceError(0.0, 0.0)
    if float(y.norm()) == 0:
        return ReferenceError(math.inf, math.inf)
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
