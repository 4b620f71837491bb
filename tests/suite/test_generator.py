"""Tests that generated problems are valid, deterministic, and split by their operations."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
import torch

from cudal1.errors import ConfigError
from cudal1.problem import DeviceClass, Split
from cudal1.suite.generator import FAMILIES, KNOBS, Family, apart, generate, is_reserved, problems

CPU, CUDA = DeviceClass.CPU, DeviceClass.CUDA


def run(source: str) -> torch.Tensor:
    scope: dict[str, object] = {}
    exec(compile(source, "problem", "exec"), scope)
    torch.manual_seed(0)
    model = scope["Model"](*scope["get_init_inputs"]())  # type: ignore[operator]
    with torch.no_grad():
        return model(*scope["get_inputs"]())  # type: ignore[operator]


def test_equal_arguments_give_equal_problems() -> None:
    one, other = (generate(4, 2, device_class=CPU, num_stages=3) for _ in range(2))
    assert one == other


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)
def test_every_operation_runs_and_its_output_varies(family: object) -> None:
    result = run(generate(0, 0, device_class=CPU, num_stages=1, families=[family.name]).source)  # type: ignore[attr-defined]
    assert torch.isfinite(result).all()
    assert result.std() > 0


@pytest.mark.parametrize("index", range(40))
def test_compositions_are_finite_and_vary(index: int) -> None:
    result = run(generate(11, index, device_class=CPU, num_stages=1 + index % 4).source)
    assert torch.isfinite(result).all()
    assert result.std() > 0


@pytest.mark.parametrize("device_class", [CPU, CUDA])
def test_every_operation_compiles_for_every_device_class(device_class: DeviceClass) -> None:
    for family in FAMILIES:
        compile(
            generate(0, 0, device_class=device_class, num_stages=1, families=[family.name]).source,
            family.name,
            "exec",
        )


def test_levels_follow_the_number_of_operations() -> None:
    assert [generate(0, 0, device_class=CPU, num_stages=n).level for n in (1, 2, 3, 4)] == [
        1,
        2,
        2,
        3,
    ]


@pytest.mark.parametrize("num_stages", [2, 3, 4])
@pytest.mark.parametrize("split", Split)
def test_a_reserved_combination_is_held_out_and_never_trained_on(
    split: Split, num_stages: int
) -> None:
    for index in range(100):
        problem = generate(0, index, device_class=CPU, num_stages=num_stages, split=split)
        assert problem.split is split
        assert is_reserved(operations(problem.name)) == (split is Split.HELDOUT)


def operations(name: str) -> list[str]:
    """Return the operations in a problem's name."""
    found: list[str] = []
    known = sorted((f.name for f in FAMILIES), key=len, reverse=True)
    while name:
        first = next(k for k in known if name == k or name.startswith(k + "_"))
        found.append(first)
        name = name[len(first) + 1 :]
    return found


def test_the_order_of_operations_does_not_change_the_split() -> None:
    assert is_reserved(["softmax", "silu", "row_loop"]) == is_reserved(
        ["row_loop", "softmax", "silu"]
    )


def test_single_operations_are_never_reserved() -> None:
    assert not any(is_reserved([family.name]) for family in FAMILIES)


def test_a_sixth_of_pairs_is_reserved() -> None:
    names = [family.name for family in FAMILIES]
    pairs = [(a, b) for a in names for b in names if a < b]
    assert 0.12 < sum(map(is_reserved, pairs)) / len(pairs) < 0.21


def test_the_requested_number_of_different_problems_is_generated() -> None:
    found = problems(50, seed=1, device_class=CPU, split=Split.HELDOUT)
    assert len({problem.id for problem in found}) == 50


def test_training_and_heldout_problems_do_not_overlap() -> None:
    train, heldout = (
        {p.id for p in problems(60, seed=1, device_class=CPU, split=s)} for s in Split
    )
    assert not train & heldout


@pytest.mark.parametrize(
    "families", [["no_such_operation"], ["linear_sum", "softmax"], [], ["silu"] * 5]
)
def test_operations_that_cannot_be_composed_are_refused(families: list[str]) -> None:
    with pytest.raises(ConfigError):
        generate(0, 0, device_class=CPU, num_stages=1, families=families)


@pytest.mark.parametrize("family", KNOBS, ids=lambda f: f.name)
def test_every_operation_with_a_knob_runs(family: Family) -> None:
    result = run(generate(0, 0, device_class=CPU, num_stages=1, families=[family.name]).source)
    assert torch.isfinite(result).all()
    assert result.std() > 0


@pytest.mark.parametrize("split", Split)
@pytest.mark.parametrize("num_knobs", [1, 2])
def test_a_problem_has_the_requested_number_of_knobs_and_runs(split: Split, num_knobs: int) -> None:
    names = "|".join(family.name for family in KNOBS)
    for index in range(12):
        problem = generate(
            5, index, device_class=CPU, num_stages=3, split=split, num_knobs=num_knobs
        )
        assert len(re.findall(names, problem.name)) == num_knobs
        assert torch.isfinite(run(problem.source)).all()


@pytest.mark.parametrize("num_stages", range(1, 5))
@pytest.mark.parametrize("count", range(3))
def test_knobs_are_never_neighbours_and_fewer_where_they_do_not_fit(
    num_stages: int, count: int
) -> None:
    for seed in range(20):
        places = apart(random.Random(seed), num_stages, count)
        assert len(places) == min(count, (num_stages + 1) // 2)
        assert all(0 <= place < num_stages for place in places)
        assert all(later - place > 1 for place, later in pairwise(places))


def test_problems_have_no_knob_unless_it_is_requested() -> None:
    """Knobs that are not requested change nothing: the shipped run's problems stay."""
    names = {family.name for family in KNOBS}
    found = problems(50, seed=7, device_class=CPU, split=Split.HELDOUT)
    assert not any(name in problem.name for problem in found for name in names)
