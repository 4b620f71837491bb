"""Test how far outputs move with inputs, and when a reference is weak for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from cudal1.harness.oracle.correctness import NOTICED, ReferenceError, let_through
from cudal1.harness.oracle.effect import BEYOND, Effect, distance, effect
from cudal1.harness.shared.wire import TensorSpec
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    from cudal1.harness.inputs.draws import Tensors

torch = pytest.importorskip("torch")

Forward = Callable[[Any, Any], Any]


def found(forward: Forward) -> Effect:
    """Return the effect of two draws' inputs on the output of a function of tensors."""

    def call(inputs: Tensors) -> Tensors:
        return [forward(*inputs)]

    generator = torch.Generator().manual_seed(1)
    first, other = ([torch.randn(64, 64, generator=generator) for _ in range(2)] for _ in range(2))
    return effect(first, call(first), [(other, call(other))], call)


def test_outputs_that_move_with_every_input_make_no_weak_reference() -> None:
    moved = found(lambda x, y: x + 0.1 * y)
    assert moved.least == pytest.approx(0.1 * 2**0.5, rel=0.1)
    assert (moved.least_place, moved.weakness(0.01)) == (1, None)


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (lambda x, y: 0 * x * y + 3, "the output is constant"),
        (lambda x, y: torch.arange(64.0), "the output does not depend on the inputs"),
        (lambda x, y: y + 1e-4 * x, "the output does not depend on input 0"),
        (lambda x, y: x + 1e-4 * y, "the output does not depend on input 1"),
        (lambda x, y: (x > 9).int(), "the output is constant"),
    ],
)
def test_a_weakness_names_what_outputs_do_not_depend_on(forward: Forward, said: str) -> None:
    weakness = found(forward).weakness(2e-3)
    assert weakness is not None
    assert weakness.startswith(said)
    assert weakness.endswith("at most 0.002")


def test_an_input_that_cannot_be_changed_alone_counts_as_effective() -> None:
    first, other = [torch.ones(4), torch.ones(4)], [torch.full((4,), 2.0), torch.full((4,), 5.0)]
    moved = effect(first, [first[0]], [(other, [other[0]])], lambda _: None)
    assert (moved.of_all, moved.least, moved.least_place) == (1.0, 1.0, None)


def test_a_fixed_input_is_changed_to_see_its_effect() -> None:
    mask, first, other = torch.ones(4), torch.arange(4.0), torch.arange(4.0) + 1
    draws = [first, mask], [other, mask]
    ignored = effect(draws[0], [first], [(draws[1], [other])], lambda inputs: [inputs[0]])
    used = effect(draws[0], [first], [(draws[1], [other])], lambda inputs: [inputs[0] * inputs[1]])
    assert (ignored.least, ignored.least_place) == (0.0, 1)
    assert used.least > 0.5


def test_a_distance_that_cannot_be_computed_is_a_large_one() -> None:
    assert distance([torch.ones(3)], [torch.tensor([1.0, float("nan"), 1.0])]) == BEYOND
    assert distance([torch.ones(3)], [torch.ones(4)]) == BEYOND
    assert distance([torch.zeros(3)], [torch.zeros(3)]) == 0.0


@pytest.mark.parametrize(
    ("dtype", "precision", "error", "limit"),
    [
        ("float32", PrecisionClass.STRICT, 0.0, NOTICED),
        ("float32", PrecisionClass.STRICT, 1e-3, 4e-3),
        ("float32", PrecisionClass.HALF, 0.0, 5e-3),
        ("bfloat16", PrecisionClass.STRICT, 0.0, 1e-2),
        ("int64", PrecisionClass.HALF, 0.0, NOTICED),
    ],
)
def test_the_check_lets_through_what_its_bound_allows(
    dtype: str, precision: PrecisionClass, error: float, limit: float
) -> None:
    specs = (TensorSpec(dtype, (4,)),)
    assert let_through(specs, ReferenceError(error, error), precision) == pytest.approx(limit)
