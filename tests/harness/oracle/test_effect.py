"""Test when the check would notice that outputs are those for other inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from cudal1.harness.oracle.correctness import ReferenceError
from cudal1.harness.oracle.effect import BEYOND, Effect, distance, effect, is_noticed
from cudal1.protocol import PrecisionClass

if TYPE_CHECKING:
    from cudal1.harness.inputs.draws import Tensors

torch = pytest.importorskip("torch")

NONE = ReferenceError(0.0, 0.0)
Forward = Callable[..., Any]


def drawn(seed: int) -> Tensors:
    """Draw two inputs."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(64, 64, generator=generator) for _ in range(2)]


def found(
    forward: Forward,
    precision: PrecisionClass = PrecisionClass.HALF,
    draw: Callable[[int], Tensors] = drawn,
    error: ReferenceError = NONE,
) -> Effect:
    """Return the effect of inputs on the outputs of a function; it may raise ValueError."""

    def call(inputs: Tensors) -> Tensors | None:
        try:
            outputs = forward(*inputs)
        except ValueError:
            return None
        return list(outputs) if isinstance(outputs, tuple) else [outputs]

    first = draw(1)
    outputs = call(first)
    assert outputs is not None
    notices = partial(is_noticed, error=error, precision=precision)
    return effect(first, outputs, (2, 3, 4), draw, call, notices)


def test_outputs_that_move_with_every_input_make_no_weak_reference() -> None:
    moved = found(lambda x, y: x + 0.1 * y)
    assert moved.least == pytest.approx(0.1 * 2**0.5, rel=0.1)
    assert moved.weakness is None


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
    weakness = found(forward).weakness
    assert weakness is not None
    assert weakness.startswith(f"{said}: it moves by ")


@pytest.mark.parametrize(
    ("forward", "is_weak"),
    [
        (lambda x, y: (x.sum(), (0 * y).sum()), False),  # one output tells
        (lambda x, y: (0 * x + 1).long() * 10**6 + (x.abs() > 2).long(), False),  # exact
        (lambda x, y: (x * 1e-9).double().cumsum(0) + 1.0, False),
        (lambda x, y: torch.cat([torch.ones(10**5), x[0, :1]]), False),  # one element of many
        (lambda x, y: x.half() * 1e-3 + 1, True),
        (lambda x, y: (x * 0 + 1).bfloat16(), True),
    ],
    ids=["outputs", "integers", "float64", "sparse", "half", "bfloat16"],
)
def test_each_output_is_noticed_as_the_check_compares_it(forward: Forward, is_weak: bool) -> None:
    alone = found(lambda x: forward(x, x), PrecisionClass.STRICT, lambda seed: drawn(seed)[:1])
    assert (alone.weakness is not None) is is_weak


@pytest.mark.parametrize(
    ("precision", "error", "is_weak"),
    [
        (PrecisionClass.STRICT, NONE, False),
        (PrecisionClass.STRICT, ReferenceError(1e-3, 1e-3), True),
        (PrecisionClass.TF32, NONE, True),
    ],
)
def test_the_class_and_the_reference_s_error_decide_what_is_noticed(
    precision: PrecisionClass, error: ReferenceError, is_weak: bool
) -> None:
    moved = found(lambda x, y: torch.ones(64, 64) + 1e-3 * (x + y), precision, error=error)
    assert (moved.weakness is not None) is is_weak


def test_a_mean_that_hardly_moved_in_one_draw_may_move_in_another() -> None:
    draws = {1: 1.0, 2: 1.0 + 1e-6, 3: 1.0, 4: 1.5}
    moved = found(lambda x: x, draw=lambda seed: [torch.tensor([draws[seed]])])
    assert (moved.least, moved.weakness) == (0.5, None)


def test_inputs_that_cannot_be_mixed_count_as_effective() -> None:
    def pair(seed: int) -> Tensors:
        return [torch.full((4,), float(seed)), torch.full((4,), float(seed))]

    def forward(x: Any, y: Any) -> Any:
        if not torch.equal(x, y):
            raise ValueError
        return x

    moved = found(forward, draw=pair)
    assert (moved.least, moved.weakness) == (1.0, None)


def test_an_input_that_is_the_same_in_every_draw_is_left_out() -> None:
    mask = torch.ones(64, 64)
    moved = found(lambda x, y: x, draw=lambda seed: [drawn(seed)[0], mask])
    assert moved.weakness is None


def test_a_distance_that_cannot_be_computed_is_a_large_one() -> None:
    assert distance([torch.ones(3)], [torch.tensor([1.0, float("nan"), 1.0])]) == BEYOND
    assert distance([torch.ones(3)], [torch.ones(4)]) == BEYOND
    assert distance([torch.zeros(3)], [torch.zeros(3)]) == 0.0
