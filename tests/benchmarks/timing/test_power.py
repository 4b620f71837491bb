"""Tests of pairs of known gains: their work, their order, and the shares of their verdicts."""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.timing import power
from cudal1.harness.device.device import find_device
from cudal1.harness.screen.sameness import is_copy
from cudal1.problem import DeviceClass


def row(certified: float | None, **changes: Any) -> power.Row:
    found: power.Row = {
        "kind": "pair",
        "hogs": 0,
        "gain": 2.0,
        "certified": certified,
        "estimate": certified,
        "quads": 9,
        "took_s": 1.0,
    }
    return {**found, **changes}


@pytest.mark.parametrize(("gain", "times"), power.PRODUCTS.items())
def test_a_pair_of_products_differs_in_work_by_its_gain_and_not_in_its_output(
    gain: float, times: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: Counter[str] = Counter()
    real = torch.Tensor.__matmul__
    outputs: list[torch.Tensor] = []
    for name, number in zip(("Model", "ModelNew"), times, strict=True):

        def counted(x: torch.Tensor, y: torch.Tensor, name: str = name) -> torch.Tensor:
            made[name] += 1
            return real(x, y)

        monkeypatch.setattr(torch.Tensor, "__matmul__", counted)
        namespace: dict[str, Any] = {}
        exec(power.PRODUCT.format(name=name, times=number, size=4), namespace)
        torch.manual_seed(1)
        outputs.append(namespace[name]()(*namespace["get_inputs"]()))
    assert made["Model"] / made["ModelNew"] == pytest.approx(gain)
    assert torch.equal(*outputs)


@pytest.mark.slow
def test_equal_pairs_have_a_new_disguise_each_time_and_are_no_copies() -> None:
    device = find_device(DeviceClass.CPU)
    number = len(power.shipped(device))
    cases = list(itertools.islice(power.null_cases(device), 2 * number))
    assert [case.name for case in cases[:number]] == [case.name for case in cases[number:]]
    assert all(not is_copy(case.source, case.problem.source) for case in cases)
    assert len({case.source for case in cases}) == len(cases)


@pytest.mark.parametrize(("tries", "nulls"), [(3, 10), (2, 0), (0, 5), (4, 3)])
def test_each_pair_comes_equally_often_beside_each_number_of_busy_processes(
    tries: int, nulls: int
) -> None:
    given = argparse.Namespace(tries=tries, nulls=nulls, hogs=[0, 2])
    gains: list[Any] = ["one", "two"] if tries else []
    equals: Any = (f"null {number}" for number in itertools.count())
    found = [(str(case), hogs) for case, hogs in power.turns(gains, equals, given)]
    assert len(found) == power.num_wanted(len(gains), given)
    for hogs in given.hogs:
        mine = [case for case, number in found if number == hogs]
        assert mine.count("one") == mine.count("two") == tries
        assert [case for case in mine if "null" in case] == [f"null {i}" for i in range(nulls)]
    if tries > 1:
        assert [hogs for hogs, _ in itertools.groupby(hogs for _, hogs in found)] == [0, 2] * tries


def test_shares_count_correct_verdicts_and_a_gain_counts_once_enough_of_it_is_certified() -> None:
    told = [1.0, 1.49, 1.5, 1.9, 2.1, 0.8, None]
    (found,) = power.summaries([row(each) for each in told], found_share=math.log2(1.5))
    assert (found.num_verdicts, found.num_correct) == (7, 6)
    assert (found.faster, found.found) == (4 / 6, 3 / 6)
    assert (found.too_much, found.slower) == (1 / 6, 1 / 6)


def test_any_certified_gain_between_equals_is_too_much() -> None:
    rows = [row(each, kind="equals", gain=1.0) for each in (1.0, 1.0, 1.2, 0.9)]
    (found,) = power.summaries(rows, found_share=0.585)
    assert (found.faster, found.too_much, found.slower) == (0.25, 0.25, 0.25)


def test_summaries_are_separate_for_each_number_of_busy_processes() -> None:
    rows = [row(1.0, hogs=hogs) for hogs in (0, 2, 0)]
    found = power.summaries(rows, found_share=0.585)
    assert [(each.num_hogs, each.num_verdicts) for each in found] == [(0, 2), (2, 1)]


def test_a_kind_without_a_correct_verdict_has_no_speedup() -> None:
    (found,) = power.summaries([row(None)], found_share=0.585)
    assert math.isnan(found.certified)
    assert found.faster == 0.0


def test_a_verdict_has_a_short_text() -> None:
    measurement = SimpleNamespace(
        certified=1.5,
        speedup=1.61234,
        lower=1.5,
        upper=None,
        num_quads=9,
        doubt="work",
        is_confirmed=True,
    )
    verdict = SimpleNamespace(status="correct", reason=None, measurement=measurement)
    pool: Any = SimpleNamespace(judge=lambda *_: SimpleNamespace(verdict=verdict))
    problem: Any = SimpleNamespace(id="p")
    found = power.judged(pool, power.Case("pair", problem, "source", 2.0), 2)
    assert (found["kind"], found["hogs"], found["certified"]) == ("pair", 2, 1.5)
    assert (found["estimate"], found["lower"], found["upper"]) == (1.6123, 1.5, None)
