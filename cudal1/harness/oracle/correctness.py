"""Decide whether an output is the answer: the three-part tolerance, by dtype and precision class.

All comparisons fail closed: whatever is not provably within its bound is wrong, NaN included. The
table: docs/checks.md#what-counts-as-correct.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from cudal1.harness.oracle.deviations import Distances, distances, largest
from cudal1.harness.oracle.parts import in_parts
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    import torch


WORST_ELEMENT = 3.0
"""Error of the worst of a thousand elements, relative to the error of all. It holds where errors
are as random as those of an untrained deep network (MobileNetV2 in TF32: 4 and 14 %)."""

LIKE = {PrecisionClass.STRICT: 1.0, PrecisionClass.TF32: 3.0, PrecisionClass.HALF: 3.0}
"""Factor between an error by chance and the reference's that counts as no difference. In the looser
classes the reference's error decides most bounds; its rounding to the nearest errs half as far as
rounding up or down, and the largest of eight errors exceeds another one by a third."""


@dataclass(frozen=True)
class Tolerance:
    """Bounds for floating-point outputs; y is the oracle's output and s its root mean square."""

    relative_l2: float
    """Bound on |x - y| over |y|, for the whole tensor."""
    scaled_absolute: float
    """Bound for each element: |x - y| may be this times s, plus `relative` times |y|."""
    relative: float


@dataclass(frozen=True)
class ReferenceError:
    """The reference's own error against the oracle: an honest candidate may be as far off."""

    relative_l2: float
    """Infinite where it is unknown: the oracle's answer is 0 everywhere or finite in other
    places."""
    element: float
    """Largest |x - y| / (s + |y|)."""
    others: tuple[torch.Tensor, ...] = field(default=(), compare=False)
    """More answers for integers and booleans, each as right as the oracle's, element by element."""

    @property
    def is_finite(self) -> bool:
        """Return whether both parts are finite numbers."""
        return math.isfinite(self.relative_l2) and math.isfinite(self.element)

    def at_most(self, limit: float) -> ReferenceError:
        """Return the error, limited to `limit`, with the worst of many elements accordingly."""
        return replace(
            self,
            relative_l2=min(self.relative_l2, limit),
            element=min(self.element, WORST_ELEMENT * limit),
        )

    def times(self, factor: float) -> ReferenceError:
        """Return the error, so many times as large."""
        return replace(self, relative_l2=self.relative_l2 * factor, element=self.element * factor)

    def larger(self, other: ReferenceError) -> ReferenceError:
        """Return the worse of two errors, part by part."""
        return ReferenceError(
            max(self.relative_l2, other.relative_l2),
            max(self.element, other.element),
            self.others + other.others,
        )

    def unless_like(self, other: ReferenceError, precision: PrecisionClass) -> ReferenceError:
        """Return the error, with the parts of another one that are unlike its own in a class."""

        def part(mine: float, theirs: float) -> float:
            return theirs if theirs > LIKE[precision] * mine else mine

        return replace(
            self,
            relative_l2=part(self.relative_l2, other.relative_l2),
            element=part(self.element, other.element),
        )


ORDER = (PrecisionClass.STRICT, PrecisionClass.TF32, PrecisionClass.HALF)
"""Precision classes, the tightest first."""

_FLOAT32 = {
    PrecisionClass.STRICT: Tolerance(2e-6, 1e-5, 1e-5),
    PrecisionClass.TF32: Tolerance(1e-3, 4e-3, 4e-3),
    PrecisionClass.HALF: Tolerance(5e-3, 3e-2, 3e-2),
}
_BY_DTYPE = {
    "float64": dict.fromkeys(ORDER, Tolerance(1e-12, 1e-11, 1e-9)),
    "float32": _FLOAT32,
    "float16": dict.fromkeys(ORDER, Tolerance(2e-3, 2e-3, 2e-3)),
    "bfloat16": dict.fromkeys(ORDER, Tolerance(1e-2, 1e-2, 1.6e-2)),
}
ERROR_MARGIN = 4.0
"""Factor by which a candidate may be farther from the oracle than the reference is."""


FAR = 0.08
"""Relative L2 error of an output that no rounding explains: `ERROR_MARGIN` times the reference's
largest error that widens a bound (`answering.TOO_HARD`)."""


@dataclass(frozen=True)
class Comparison:
    """A comparison of one output tensor with the oracle's."""

    relative_l2: float
    """Infinite when it cannot be computed."""
    worst: dict[PrecisionClass, float]
    """Largest error over its bound in each class, or an upper bound of it; above 1 fails."""
    mismatch: str | None
    """Place of the largest error, when the output fails the tightest class or has a wrong kind of
    value."""

    def meets(self, precision: PrecisionClass) -> bool:
        """Return whether the output counts as correct in that class."""
        return self.worst[precision] <= 1.0


def compare(
    output: torch.Tensor, answer: torch.Tensor, reference_error: ReferenceError
) -> Comparison:
    """Compare a candidate's output (its own dtype) with the oracle's answer (maybe float64).

    Integers and booleans must equal the answer's or those of one of `others`. A tie, or a half that
    is rounded, may fall to either side, depending on how earlier numbers were rounded. Infinities
    and NaN must stand where the answer's stand. Every element is held to its bound, so that no
    separate cap on outliers is needed.
    """
    import torch

    dtype = str(output.dtype).removeprefix("torch.")
    if dtype not in _BY_DTYPE:
        expected = _nearest(output, answer, reference_error)
        return _exact(torch.equal(output, expected), output, expected)
    x, y = output.reshape(1, -1), answer.reshape(1, -1)
    size, off = _norms(x, y)
    if not math.isfinite(size):
        finite = torch.isfinite(y)
        same = torch.equal(torch.isfinite(x), finite) and torch.equal(
            torch.nan_to_num(x[~finite].double(), nan=7.0),
            torch.nan_to_num(y[~finite].double(), nan=7.0),
        )
        if not same:
            return _exact(False, x, y)
        x, y = x[finite].double()[None], y[finite].double()[None]
        size, off = _norms(x, y)
    if y.numel() == 0:
        return _exact(True, x, y)
    relative_l2 = 0.0 if off == 0 else off / size if size > 0 else math.inf
    worst: dict[PrecisionClass, float] = {}
    score = float("inf")
    for precision, tolerance in _BY_DTYPE[dtype].items():
        if not score <= 1.0:  # what meets a class meets the looser ones
            score = _score(x, y, size, relative_l2, reference_error, tolerance)
        worst[precision] = score
    mismatch = None
    if not worst[PrecisionClass.STRICT] <= 1.0:
        place = int(torch.nan_to_num((x.double() - y).abs(), nan=float("inf")).argmax())
        found, expected = float(x.flatten()[place]), float(y.flatten()[place])
        mismatch = f"element {place}: {found:.6g}, not {expected:.6g}"
    return Comparison(relative_l2, worst, mismatch)


class Expected:
    """An answer for many outputs that are mostly wrong; comparing stops at the first wrong part.

    Args:
        answer: the oracle's.
        reference_error: the reference's error against the answer.
        precision: the class that outputs have to meet.
    """

    def __init__(
        self, answer: torch.Tensor, reference_error: ReferenceError, precision: PrecisionClass
    ) -> None:
        self._answer = answer
        self._error = reference_error
        self._precision = precision
        self._size: float | None = None
        """Euclidean norm of the answer, once an output was compared."""

    def admits(self, output: torch.Tensor) -> bool:
        """Return whether `compare` says of an output that it meets the class."""
        import torch

        dtype = str(output.dtype).removeprefix("torch.")
        if dtype not in _BY_DTYPE:
            return torch.equal(output, _nearest(output, self._answer, self._error))
        x, y = output.reshape(1, -1), self._answer.reshape(1, -1)
        parts, known = list(in_parts(x, y)), list[Distances]()
        if self._size is None:  # the first output is mostly right, and all of it is looked at
            known = [distances(*part) for part in parts]
            self._size = math.hypot(*(float(each.size_N) for each in known))
        if not math.isfinite(self._size):
            return compare(output, self._answer, self._error).meets(self._precision)
        tolerance = _BY_DTYPE[dtype][self._precision]
        absolute, relative, relative_l2 = _bounds(tolerance, self._error)
        absolute *= self._size / max(1, y.shape[1]) ** 0.5
        off = 0.0
        for number, (x_part, y_part) in enumerate(parts):
            of_part = known[number] if known else distances(x_part, y_part)
            # what is within the smallest bound of an element needs no look at each one's own
            if not float(of_part.farthest_N) <= absolute and not (
                _largest(x_part, y_part, absolute=absolute, relative=relative) <= 1.0
            ):
                return False
            off = math.hypot(off, float(of_part.off_N))
        return off <= relative_l2 * self._size

    def is_near(self, output: torch.Tensor) -> bool:
        """Return whether `is_near` says so of an output and the answer."""
        return is_near(output, self._answer, self._size)


def is_near(output: torch.Tensor, answer: torch.Tensor, size: float | None = None) -> bool:
    """Return whether an output is so near to the answer that rounding may explain its error.

    A far output is found out at its first part. `size` is the answer's norm, if it is known. Only
    numbers that are not whole may be near.
    """
    if not output.is_floating_point():
        return False
    x, y = output.reshape(1, -1), answer.reshape(1, -1)
    size, off = _norms(y, y)[0] if size is None else size, 0.0
    if not math.isfinite(size):  # its elements may be near, where they are finite
        return True
    for parts in in_parts(x, y):
        off = math.hypot(off, _norms(*parts)[1])
        if not off <= FAR * size:
            return False
    return True


def _nearest(
    output: torch.Tensor, answer: torch.Tensor, reference_error: ReferenceError
) -> torch.Tensor:
    """Return the output's integers or booleans where they are right, else the answer's."""
    import torch

    expected = answer.to(output.dtype)
    for other in reference_error.others:
        expected = torch.where(output == other, output, expected)
    return expected


def agree(
    outputs_NX: torch.Tensor,
    answers_NX: torch.Tensor,
    reference_errors: Sequence[ReferenceError],
    precision: PrecisionClass,
) -> list[bool]:
    """Return which of N outputs meet a class, each by itself, compared all at once.

    An item is True only where `compare` would say so; infinities and NaN are left to `compare`. The
    N outputs may lie apart, as calls of a burst do.
    """
    import torch

    dtype = str(outputs_NX.dtype).removeprefix("torch.")
    tolerance = _BY_DTYPE.get(dtype, {}).get(precision)
    count, length = len(outputs_NX), outputs_NX[0].numel()
    x, y = outputs_NX.reshape(count, length), answers_NX.reshape(count, length)
    if tolerance is None or not length:
        return [bool(same) for same in (x == y).all(dim=1).tolist()]
    size_N, off_N, farthest_N = distances(x, y)
    bounds = [_bounds(tolerance, error) for error in reference_errors]
    bounds_3N = torch.tensor(bounds, dtype=torch.float64, device=x.device).T
    absolute_N, relative_N, relative_l2_N = bounds_3N.contiguous()
    absolute_N *= size_N / length**0.5
    # a bound that is not finite bounds nothing
    good_N = size_N.isfinite() & (off_N <= relative_l2_N * size_N)
    within_N = farthest_N.isfinite() & (farthest_N <= absolute_N)
    if bool((good_N & ~within_N).any()):  # else a second look would say the same
        within_N |= largest(x, y, absolute_N=absolute_N, relative_N=relative_N) <= 1.0
    return (good_N & within_N).tolist()


def _bounds(tolerance: Tolerance, error: ReferenceError) -> tuple[float, float, float]:
    """Return the bounds of an element, over the root mean square and itself, and of the L2 error.

    The reference's own error widens each bound.
    """
    slack = ERROR_MARGIN * error.element
    relative_l2 = max(tolerance.relative_l2, ERROR_MARGIN * error.relative_l2)
    return max(tolerance.scaled_absolute, slack), max(tolerance.relative, slack), relative_l2


def _score(
    x_1K: torch.Tensor,
    y_1K: torch.Tensor,
    size: float,
    relative_l2: float,
    reference_error: ReferenceError,
    tolerance: Tolerance,
) -> float:
    """Return the largest error over its bound; infinite when any part of it is NaN."""
    absolute, relative, l2_bound = _bounds(tolerance, reference_error)
    absolute *= size / y_1K.shape[1] ** 0.5
    worst = _largest(x_1K, y_1K, absolute=absolute, relative=relative)
    score = worst if not worst <= relative_l2 / l2_bound else relative_l2 / l2_bound
    return score if score == score else math.inf


def _norms(x_1K: torch.Tensor, y_1K: torch.Tensor) -> tuple[float, float]:
    """Return the norms of y and of x - y."""
    if not y_1K.numel():
        return 0.0, 0.0
    found = distances(x_1K, y_1K)
    return float(found.size_N), float(found.off_N)


def _largest(x_1K: torch.Tensor, y_1K: torch.Tensor, *, absolute: float, relative: float) -> float:
    import torch

    bounds_21 = torch.tensor([[absolute], [relative]], dtype=torch.float64, device=x_1K.device)
    return float(largest(x_1K, y_1K, absolute_N=bounds_21[0], relative_N=bounds_21[1]))


def reference_error(reference: torch.Tensor, answer: torch.Tensor) -> ReferenceError:
    """Return the error of the reference's own output against the oracle's.

    It is infinite unless both are finite in the same places.
    """
    import torch

    if not reference.is_floating_point():
        return ReferenceError(0.0, 0.0)
    x, y = reference.reshape(1, -1), answer.reshape(1, -1)
    size, off = _norms(x, y)
    if not math.isfinite(size + off):
        finite = torch.isfinite(y)
        if not torch.equal(torch.isfinite(x), finite):
            return ReferenceError(math.inf, math.inf)
        x, y = x[finite].double()[None], y[finite].double()[None]
        size, off = _norms(x, y)
    if off == 0:
        return ReferenceError(0.0, 0.0)
    if size == 0 or not math.isfinite(size + off):  # so large that their squares are not finite
        return ReferenceError(math.inf, math.inf)
    scale = size / y.shape[1] ** 0.5
    return ReferenceError(off / size, _largest(x, y, absolute=scale, relative=1.0))


def _exact(equal: bool, x: torch.Tensor, y: torch.Tensor) -> Comparison:
    if equal:
        return Comparison(0.0, dict.fromkeys(ORDER, 0.0), None)
    wrong = (x != y).flatten()
    place = int(wrong.int().argmax()) if wrong.numel() else 0
    said = f"element {place}: {x.flatten()[place].item()}, not {y.flatten()[place].item()}"
    return Comparison(float("inf"), dict.fromkeys(ORDER, float("inf")), said)
