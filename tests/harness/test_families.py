"""Kinds of inputs that a problem's own generator would never draw."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cudal1.harness.families import FAMILIES, change_inputs


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
