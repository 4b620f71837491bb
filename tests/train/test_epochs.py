"""Tests that an epoch's order depends on its number alone."""

from __future__ import annotations

from typing import Any

from cudal1.train.epochs import Epochs

COUNT = 12


def sampler() -> Any:
    from trl.trainer.utils import RepeatSampler

    return RepeatSampler(list(range(COUNT)), mini_repeat_count=1, batch_size=3, seed=1)


def test_an_epoch_has_the_same_order_after_any_history() -> None:
    epoch = [0]
    places = Epochs(sampler(), lambda: epoch[0], seed=1)
    orders: list[list[int]] = []
    for epoch[0] in range(3):
        orders.append(list(places))
    assert list(Epochs(sampler(), lambda: 2, seed=1)) == orders[2]
    assert orders[0] != orders[1] != orders[2]
    assert all(sorted(order) == list(range(COUNT)) for order in orders)


def test_the_first_epoch_has_trls_own_order() -> None:
    assert list(Epochs(sampler(), lambda: 0, seed=1)) == list(sampler())
    assert len(Epochs(sampler(), lambda: 0, seed=1)) == COUNT
