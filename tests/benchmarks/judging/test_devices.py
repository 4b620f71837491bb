"""Tests that the queue for measuring devices holds new candidates of every kind."""

from __future__ import annotations

import ast
from typing import Any

import pytest

from benchmarks.judging.devices import queue, together, turns
from benchmarks.judging.inline import EXPRESSIONS
from cudal1.harness.builds.toolchain import COMPILES
from cudal1.harness.screen.screen import syntax_error
from cudal1.problem import DeviceClass, Problem
from cudal1.suite import loader

EACH = 8
NAMES = 5
"""Number of problems; the two that have extensions are the last."""


def shipped(device_class: DeviceClass) -> dict[str, Problem]:
    suite = loader.load_suite(device_class)
    return {f"level{each.level}/{each.number:02d}_{each.name}": each for each in suite}


@pytest.mark.parametrize("device_class", [DeviceClass.CPU, DeviceClass.CUDA])
def test_half_of_the_candidates_beyond_plain_pytorch_compile_an_extension(
    device_class: DeviceClass,
) -> None:
    work = queue(shipped(device_class), EACH, NAMES, label="x", every=4)
    extensions = [each.source for _, each in work if COMPILES in each.source]
    triton = [each.source for _, each in work if "import triton" in each.source]
    assert len(work) == EACH * NAMES
    assert len(extensions) == len(EXPRESSIONS) * EACH // 4
    is_gpu = device_class is DeviceClass.CUDA
    assert len(triton) == (len(extensions) if is_gpu else 0)
    assert all(("cuda_sources" in source) is is_gpu for source in extensions)


@pytest.mark.parametrize("every", [2, 4, 8])
def test_the_queue_has_as_many_extensions_as_requested(every: int) -> None:
    work = queue(shipped(DeviceClass.CUDA), EACH, NAMES, label="x", every=every)
    num = sum(COMPILES in each.source for _, each in work)
    assert num == len(EXPRESSIONS) * EACH // every


def test_each_fleet_has_its_own_candidates_down_to_the_compiled_text() -> None:
    problems = shipped(DeviceClass.CUDA)
    first, second = (
        queue(problems, EACH, NAMES, label=label, every=4) for label in ("0 of 1", "1 of 2")
    )
    ids = [candidate.id for _, candidate in (*first, *second)]
    assert len(set(ids)) == len(ids)
    compiled = [
        node.value.value
        for _, candidate in (*first, *second)
        if COMPILES in candidate.source and syntax_error(candidate.source) is None
        for node in ast.parse(candidate.source).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    ]
    assert len(set(compiled)) == len(compiled) >= EACH // 2


def test_each_fleet_has_one_turn_in_each_round_and_begins_half_of_the_rounds() -> None:
    order = turns([1, 2], 4)
    assert sorted(order) == [(i, n) for i in range(4) for n in (1, 2)]
    assert [n for _, n in order[::2]] == [1, 2, 1, 2]


def test_verdicts_per_minute_are_computed_over_all_rounds_together() -> None:
    def fleet(number: int, wall_s: float, num_quads: int | None) -> dict[str, Any]:
        return {
            "round": number,
            "num_devices": 2,
            "num_verdicts": 30,
            "num_extensions": 3,
            "wall_s": wall_s,
            "per_minute": 30 / wall_s * 60,
            "parts": {"part": (2, wall_s / 10)},
            "shares": {"measuring": 20 / wall_s},
            "verdicts": [{"num_quads": num_quads}],
        }

    row = together([fleet(1, 60.0, 9), fleet(0, 30.0, None)])
    assert (row["num_verdicts"], row["num_extensions"], row["wall_s"]) == (60, 6, 90.0)
    assert row["per_minute"] == pytest.approx(40.0)
    assert row["by_round"] == [60.0, 30.0]
    assert row["shares"]["measuring"] == pytest.approx(40 / 90)
    assert row["parts"] == {"part": (4, pytest.approx(9.0))}
    assert row["num_quads"] == [9]
