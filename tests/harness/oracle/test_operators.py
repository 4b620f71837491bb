"""Operators are rounded or left out, and the rest of a computation does not change."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from cudal1.harness.oracle.operators import Dropping, Rounding, Shaking, Watching, to_half, to_tf32

X = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


def dropped(compute, place: int = -1) -> torch.Tensor:
    """Return a result without one of the operators that can be left out, the last by default."""
    with torch.no_grad():
        with (recorded := Dropping()):
            compute(X.clone())
        with Dropping(recorded.droppable[place]):
            return compute(X.clone())


@pytest.mark.parametrize(
    ("compute", "left"),
    [
        (lambda x: torch.relu(x * 2), X * 2),
        (lambda x: (x * 2).relu_(), X * 2),
        (lambda x: torch.softmax(x.exp(), dim=-1).clone(), X.exp()),
        (lambda x: x.tanh().sort(dim=-1)[0], X.tanh()),
        (lambda x: x.exp().sum(dim=-1), X.sum(dim=-1)),
        (lambda x: torch.layer_norm(x * 3, (8,)), X * 3),
    ],
)
def test_the_last_operator_that_keeps_shape_and_dtype_can_be_left_out(compute, left) -> None:
    assert torch.equal(dropped(compute), left)


def test_an_earlier_operator_can_be_left_out() -> None:
    assert torch.equal(dropped(lambda x: torch.relu(x * 2), place=-2), torch.relu(X))


def test_no_operator_is_left_out_unless_asked() -> None:
    with Dropping():
        result = torch.relu(X)
    assert torch.equal(result, torch.relu(X))


def test_rounding_is_that_of_a_half_type_and_leaves_the_given_tensors_alone() -> None:
    x, weight = X.clone(), X.clone()
    with Rounding(to_half(torch.float16)):
        result = x @ weight.t()
    half = X.half().float()
    assert torch.equal(result, (half @ half.t()).half().float())
    assert torch.equal(x, X)
    assert torch.equal(weight, X)


def test_rounding_follows_views_and_in_place_operators() -> None:
    with Rounding(to_half(torch.bfloat16)):
        y = torch.zeros(8, 8)
        y[:4] = X[:4]
        y[:4].mul_(0.3)
    assert torch.equal(y[:4], (X[:4].bfloat16().float() * 0.3).bfloat16().float())


def test_integers_are_not_rounded() -> None:
    with Rounding(to_half(torch.bfloat16)):
        assert int(torch.tensor(1001) + 1) == 1002


def test_tf32_keeps_ten_bits_rounds_to_the_nearest_and_leaves_non_finite_values() -> None:
    step = 2.0**-10
    given = torch.tensor([1 + step, 1 + 0.4 * step, -1 - 0.6 * step, 0.0, float("inf")])
    assert to_tf32(given).tolist() == [1 + step, 1.0, -1 - step, 0.0, float("inf")]
    assert to_tf32(torch.tensor([float("nan")])).isnan().all()
    assert to_tf32(torch.tensor([1 / 3], dtype=torch.float64)).dtype == torch.float64


def test_interference_imports_no_compiler() -> None:
    code = (
        "import sys, torch\n"
        "from cudal1.harness.oracle.operators import Dropping, Rounding, to_tf32\n"
        "with Dropping(), Rounding(to_tf32):\n"
        "    torch.relu(torch.ones(3) * 2)\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_compiled_function_is_interfered_with_as_an_eager_one_is() -> None:
    half = to_half(torch.float16)
    compiled = torch.compile(lambda x: x @ x, backend="eager")
    with Rounding(half):
        result = compiled(X)
    with Rounding(half):
        assert torch.equal(result, X @ X)


# --- rounding by chance --------------------------------------------------------------------------

HALF_UNIT = 2.0**-24


def shaken(compute, x: torch.Tensor, *, adding: float = 4.0, seed: int = 1) -> torch.Tensor:
    """Return a result in float64, rounded to float32 by chance."""
    shaking = Shaking(None, HALF_UNIT, adding=adding, wide=torch.float64, seed=seed)
    with torch.no_grad(), shaking:
        return compute(x.double())


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.exp(x),
        lambda x: x * 0.1,
        lambda x: (x * 0.1).add_(1.0),
        lambda x: x @ x.t(),
        lambda x: x.sum(dim=0),
        lambda x: torch.softmax(x, dim=-1),
    ],
)
def test_a_result_that_needs_rounding_is_rounded_by_chance(compute) -> None:
    exact = compute(X.double())
    one, other = (shaken(compute, X, seed=seed) for seed in (1, 2))
    assert not torch.equal(one, other)
    for result in (one, other):
        assert torch.equal(result, result.float().double())
        assert float((result - exact).norm() / exact.norm()) < 20 * HALF_UNIT


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.floor(x),
        lambda x: torch.relu(x).max(dim=-1)[0],
        lambda x: x @ x.t(),
        lambda x: x.cumsum(dim=0) / 4,
        lambda x: x.sort(dim=-1)[0],
        lambda x: (x > 1).double(),
        lambda x: x.argmax(dim=-1),
        lambda x: torch.where(x == 2, x, -x).mean(dim=0),
    ],
)
def test_a_result_that_needs_no_rounding_stays_as_it_is(compute) -> None:
    x = (X * 2).round()
    assert torch.equal(shaken(compute, x), compute(x.double()))


def test_a_sum_that_cancels_is_shaken_as_far_as_its_terms_round() -> None:
    x = torch.cat([X * 1e4, -X * 1e4, X * 1e-4])
    exact = x.double().sum(dim=0)
    off = (shaken(lambda x: x.sum(dim=0), x) - exact).abs()
    assert float(off.max()) > 1e4 * HALF_UNIT
    assert float(off.max()) < 1e4 * HALF_UNIT * 4 * len(x)


def test_shaking_leaves_generators_and_given_tensors_alone() -> None:
    x, state = X.double(), torch.get_rng_state()
    shaken(lambda given: given @ given.t(), x)
    assert torch.equal(x, X.double())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: torch.relu(x.t()).t().view(64),
        lambda x: torch.relu(x.view(1, 4, 4, 4).permute(0, 3, 1, 2)).permute(0, 2, 3, 1).view(64),
    ],
)
def test_results_rounded_by_chance_have_the_usual_strides(compute) -> None:
    assert torch.equal(shaken(compute, X), compute(X.double()))


@pytest.mark.parametrize(
    ("compute", "dtypes"),
    [
        (lambda x: torch.tanh(x @ x), set()),
        (lambda x: x.double().sum(), {torch.float64}),
        (lambda x: x.sum(dtype=torch.float64).float(), {torch.float64}),
        (lambda x: torch.tanh(x.half() * 2.0).float(), {torch.float16}),
        (lambda x: torch.fft.rfft(x).abs(), {torch.complex64}),
        (lambda x: torch.tanh(x * 2.0).round().long(), set()),
    ],
)
def test_the_types_of_numbers_in_operators_are_noted(compute, dtypes: set[torch.dtype]) -> None:
    with torch.no_grad(), Watching() as watching:
        compute(X)
    assert watching.dtypes == {torch.float32} | dtypes


def test_numbers_of_another_type_are_not_rounded_by_chance() -> None:
    shaking = Shaking(to_half(torch.bfloat16), 2.0**-9, adding=1.0, wide=torch.float32, seed=1)
    with torch.no_grad(), shaking:
        single, double = torch.exp(X), torch.exp(X.double())
    assert torch.equal(single, single.bfloat16().float())
    assert not torch.equal(single, torch.exp(X))
    assert torch.equal(double, torch.exp(X.double()))


def test_a_wide_result_shows_what_rounded_results_hide() -> None:
    """A sum near a number of bfloat16 is that number, whatever rounding its terms did."""
    terms = torch.full((64, 10), 0.2001)
    exact = terms.sum(1) - 2.0

    def off_by(*, keeps_results: bool) -> float:
        shaking = Shaking(
            to_half(torch.bfloat16),
            2.0**-9,
            adding=1.0,
            wide=torch.float32,
            seed=1,
            keeps_results=keeps_results,
        )
        with torch.no_grad(), shaking:
            return float((terms.sum(1) - 2.0 - exact).std())

    assert off_by(keeps_results=False) == 0.0
    assert 2e-4 < off_by(keeps_results=True) < 2e-3


def test_a_wide_result_that_needs_no_rounding_stays_as_it_is() -> None:
    shaking = Shaking(
        to_half(torch.bfloat16), 2.0**-9, adding=1.0, wide=torch.float32, seed=1, keeps_results=True
    )
    whole = torch.arange(12.0).reshape(3, 4)
    with torch.no_grad(), shaking:
        assert torch.equal(whole.sum(1), torch.tensor([6.0, 22.0, 38.0]))
