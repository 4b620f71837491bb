"""Weights may be drawn with NumPy or `random`; their public seed tells nothing about inputs."""

from __future__ import annotations

import random
from contextlib import suppress

import numpy as np
import pytest
import torch

from cudal1.harness.shared.seeding import kept_others, others, seed_others, seed_torch

BIG = (1 << 62) + 12345


def drawn() -> tuple[float, float]:
    return random.random(), float(np.random.rand())


def test_a_seed_gives_the_same_numbers_whatever_came_before() -> None:
    with kept_others():
        seed_others(BIG)
        first = drawn()
        drawn()
        seed_others(BIG)
        assert drawn() == first


@pytest.mark.parametrize("other", [BIG + 1, BIG - (1 << 40)])
def test_every_bit_of_a_seed_counts(other: int) -> None:
    with kept_others():
        seed_others(BIG)
        first = drawn()
        seed_others(other)
        assert not set(drawn()) & set(first)


def test_states_are_restored_even_after_an_error() -> None:
    before = others()
    with suppress(ValueError), kept_others():
        seed_others(1)
        raise ValueError
    assert others() == before


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_drawing_changes_the_states(draw: object) -> None:
    with kept_others():
        before = others()
        assert others() == before
        draw()  # pyright: ignore
        assert others() != before


def test_torch_is_seeded_without_its_cuda_queue() -> None:
    state = torch.get_rng_state()
    try:
        seed_torch(BIG, torch.device("cpu"))
        first = torch.rand(3)
        seed_torch(BIG, torch.device("cpu"))
        assert torch.rand(3).equal(first)
    finally:
        torch.set_rng_state(state)
