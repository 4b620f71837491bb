"""Draws say something or nothing by a rule that holds for every dtype."""

from __future__ import annotations

import math

import pytest
import torch

from cudal1.harness.oracle.answering import finite_alike

NUMBERS = [1.0, 2.0]


@pytest.mark.parametrize(
    ("one", "other", "is_so"),
    [
        (NUMBERS, NUMBERS, True),
        ([1.0, math.inf], NUMBERS, False),
        (NUMBERS, [math.nan, 1.0], False),
        ([math.inf, 1.0], [math.nan, 1.0], True),
        ([math.inf, 1.0], [1.0, math.inf], False),
        ([], [], True),
        ([1, 2], [3, 4], True),
        ([True, False], [True, True], True),
        ([1j, 2.0], [1j, complex(0, math.inf)], False),
        ([1j, 2.0], [1j, 3.0], True),
    ],
)
def test_the_same_elements_are_finite(
    one: list[complex], other: list[complex], is_so: bool
) -> None:
    assert finite_alike(torch.tensor(one), torch.tensor(other)) is is_so
