"""Tests of the division of devices among clients."""

from __future__ import annotations

from collections import Counter

import pytest

from cudal1.serving.fair_shares import FairShares


def turns(shares: FairShares, weights: dict[str, float], count: int) -> Counter[str]:
    found: Counter[str] = Counter()
    for _ in range(count):
        client = shares.next_of(list(weights))
        shares.charge(client, 1.0, weights[client])
        found[client] += 1
    return found


@pytest.mark.parametrize("weights", [{"a": 1.0, "b": 1.0}, {"a": 3.0, "b": 1.0}])
def test_devices_are_divided_by_shares(weights: dict[str, float]) -> None:
    found = turns(FairShares(), weights, 400)
    whole = sum(weights.values())
    assert {name: found[name] / 400 for name in weights} == pytest.approx(
        {name: weight / whole for name, weight in weights.items()}, abs=0.01
    )


def test_a_rest_is_not_saved_up() -> None:
    shares = FairShares()
    turns(shares, {"a": 1.0}, 100)
    assert turns(shares, {"a": 1.0, "b": 1.0}, 10) == {"a": 5, "b": 5}


def test_a_new_client_does_not_wait_for_what_others_have_queued() -> None:
    shares = FairShares()
    turns(shares, {"a": 1.0, "b": 1.0}, 101)
    assert turns(shares, {"a": 1.0, "b": 1.0, "c": 1.0}, 3)["c"] == 1
