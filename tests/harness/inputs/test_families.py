"""Families are kinds of inputs that a problem's own generator would never draw."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cudal1.harness.inputs.families import (
    AMPLIFIED,
    FAMILIES,
    SPREAD,
    change_inputs,
    changed_weight,
)


@given(seed=st.integers(0, 10_000), rows=st.integers(1, 4))
def test_rows_of_mixed_kinds_are_never_all_zero(seed: int, rows: int) -> None:
    torch.manual_seed(seed)
    (changed,) = change_inputs([torch.ones(rows, 3)], "mixed_rows")
    assert changed.any()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_keeps_shape_and_dtype_and_leaves_integers_alone(family: str) -> None:
    floats, indices = torch.randn(5, 3), torch.arange(6)
    changed, same = change_inputs([floats, indices], family)
    assert (changed.shape, changed.dtype) == (floats.shape, floats.dtype)
    assert torch.equal(same, indices)


def _changed(family: str, tensor: torch.Tensor) -> torch.Tensor:
    torch.manual_seed(4)
    (changed,) = change_inputs([tensor], family)
    return changed


SHAPES = pytest.mark.parametrize("shape", [(), (1,), (7,), (5, 3), (2, 3, 4), (0, 3)])


@SHAPES
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_a_family_takes_any_shape_and_float_and_gives_finite_contiguous_tensors(
    family: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    changed = _changed(family, torch.ones(shape, dtype=dtype))
    assert (changed.shape, changed.dtype) == (shape, dtype)
    assert changed.isfinite().all()
    assert changed.is_contiguous()


def test_spread_magnitudes_reach_over_most_of_their_decades() -> None:
    decades = _changed("spread", torch.ones(100, 100)).log10()
    assert decades.abs().max() <= SPREAD + 1e-5
    assert decades.max() - decades.min() > 1.9 * SPREAD


@pytest.mark.parametrize("width", [2, 7, 8])
def test_the_largest_element_of_a_row_with_ties_is_never_alone(width: int) -> None:
    changed = _changed("ties", torch.randn(50, width))
    pairs = changed[:, : width // 2 * 2].unflatten(1, (-1, 2))
    assert torch.equal(pairs[..., 0], pairs[..., 1])


def test_alternating_signs_alternate_whatever_the_generator_draws() -> None:
    changed = _changed("alternating", torch.rand(4, 6) + 0.1)
    assert torch.equal(changed.sign(), torch.tensor([1.0, -1.0] * 3).expand(4, 6))


@pytest.mark.parametrize("seed", range(20))
def test_the_one_large_element_is_far_from_all_others_whatever_it_was(seed: int) -> None:
    torch.manual_seed(seed)
    changed = change_inputs([torch.randn(4, 16)], "one_element_large")[0].abs().flatten().sort()[0]
    assert changed[-1] > 10 * changed[-2]


def test_some_weights_are_amplified_and_most_are_not() -> None:
    torch.manual_seed(0)
    sizes = [float(changed_weight(torch.randn(64, 64)).std()) for _ in range(200)]
    share = sum(size > AMPLIFIED / 2 for size in sizes) / len(sizes)
    assert 0.1 < share < 0.4


def test_changed_weights_keep_their_signs() -> None:
    torch.manual_seed(0)
    for _ in range(50):
        weight = torch.randn(32)
        assert torch.equal(changed_weight(weight).sign(), weight.sign())
