"""Float64 answers come first where the check says so, and decide wherever outputs disagree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cudal1.harness.oracle import exactness
from cudal1.harness.oracle.correctness import ReferenceError
from cudal1.harness.oracle.exactness import EXACT_INPUTS, Admission, Widening, is_exact_first
from cudal1.harness.oracle.oracle import Draw, Oracle
from cudal1.protocol import PrecisionClass

PLAIN = torch.linspace(1.0, 2.0, 64)
EXACT = PLAIN.double() * 1.01
"""An exact answer from which the reference is far off."""
NONE, HARD = ReferenceError(0.0, 0.0), ReferenceError(0.5, 0.5)


class Answers:
    """An oracle of one draw that notes how often it is asked for what takes long."""

    def __init__(
        self, *, error: ReferenceError = NONE, by_chance: ReferenceError | None = None
    ) -> None:
        self.num_exact = 0
        self.chances: list[int] = []
        self._error = error
        self._by_chance = by_chance or error

    def key(self, _draw: Any, plains: Any) -> Any:
        return [(plain, self._error) for plain in plains]

    def exact_key(self, _draw: Any, plains: Any) -> Any:
        self.num_exact += 1
        return [(EXACT, self._error) for _ in plains]

    def by_chance(self, _draw: Any, key: Any, seeds: range) -> Any:
        self.chances.append(len(seeds))
        return [self._by_chance for _ in key]

    def widened(self, key: Any, errors: Any) -> Any:
        return [(answer, error) for (answer, _), error in zip(key, errors, strict=True)]


def admission(oracle: Any, *, is_exact: bool) -> Admission:
    draw: Any = SimpleNamespace(is_own=False)
    return Admission(oracle, draw, [PLAIN], PrecisionClass.STRICT, is_exact=is_exact)


@pytest.mark.parametrize(
    ("device", "stage", "num_inputs", "is_first"),
    [
        ("cpu", 1, 0, True),
        ("cpu", 2, EXACT_INPUTS - 1, True),
        ("cpu", 2, EXACT_INPUTS, False),
        ("cuda", 1, 0, True),
        ("cuda", 1, EXACT_INPUTS, True),
        ("cuda", 2, 3, False),
    ],
)
def test_float64_comes_first_in_the_first_stage_alone_on_a_gpu(
    device: str, stage: int, num_inputs: int, is_first: bool
) -> None:
    oracle: Any = SimpleNamespace(device=torch.device(device))
    assert is_exact_first(oracle, stage, num_inputs) is is_first


def test_an_output_that_agrees_with_the_reference_needs_no_float64() -> None:
    oracle = Answers()
    assert admission(oracle, is_exact=False).admits([PLAIN.clone()])
    assert oracle.num_exact == 0


def test_an_output_that_disagrees_passes_if_float64_says_so_and_float64_runs_once() -> None:
    oracle = Answers()
    mine = admission(oracle, is_exact=False)
    assert mine.admits([EXACT.float()])
    assert not mine.admits([PLAIN + 1])
    assert oracle.num_exact == 1


def test_the_reference_s_own_output_may_be_wrong_where_float64_comes_first() -> None:
    mine = admission(Answers(), is_exact=True)
    assert mine.admits([EXACT.float()])
    assert not mine.admits([PLAIN.clone()])


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("error", [NONE, HARD])
def test_a_draw_on_which_the_reference_is_far_off_says_nothing(
    error: ReferenceError, is_exact: bool
) -> None:
    mine = admission(Answers(error=error), is_exact=is_exact)
    assert mine.says_nothing is (error is HARD)
    assert mine.admits([PLAIN + 1]) is (error is HARD)


@pytest.mark.parametrize("is_exact", [False, True])
def test_an_output_that_disagrees_passes_if_rounding_by_chance_is_as_far_off(
    is_exact: bool,
) -> None:
    oracle = Answers(by_chance=ReferenceError(1e-3, 1e-3))
    mine = admission(oracle, is_exact=is_exact)
    assert mine.admits([EXACT.float()])
    assert oracle.chances == []
    assert mine.admits([EXACT.float() * 1.003])
    assert oracle.chances == [1]


@pytest.mark.parametrize(
    ("factor", "chances"), [(1.0, [1]), (5.0, [1, 1, 2, 4]), (10.0, [1, 1, 2]), (100.0, [1, 1])]
)
def test_chances_are_taken_until_no_luck_explains_how_far_off_an_output_is(
    factor: float, chances: list[int]
) -> None:
    oracle = Answers(by_chance=ReferenceError(1e-4, 1e-4))
    off_by, draw = ReferenceError(factor * 1e-4, factor * 1e-4), SimpleNamespace()
    widening = Widening(cast("Oracle", oracle), cast("Draw", draw), [(EXACT, NONE)])
    widening.key(lambda key: key[0][1].relative_l2 >= off_by.relative_l2)
    assert oracle.chances == chances


@pytest.mark.parametrize(
    ("elements", "chances"), [(16, [1, 1, 2, 4]), (32, [1, 1, 2]), (999, [1, 1])]
)
def test_fewer_chances_are_taken_of_outputs_with_many_elements(
    elements: int, chances: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactness, "MANY_ELEMENTS", 16)
    oracle, draw = Answers(by_chance=ReferenceError(1e-4, 1e-4)), SimpleNamespace()
    key = [(torch.zeros(elements), NONE)]
    widening = Widening(cast("Oracle", oracle), cast("Draw", draw), key)
    widening.key(lambda wider: wider[0][1].relative_l2 >= 5e-4)
    assert oracle.chances == chances


@pytest.mark.parametrize("is_exact", [False, True])
def test_one_chance_is_enough_where_no_luck_explains_an_output(is_exact: bool) -> None:
    oracle = Answers(by_chance=ReferenceError(1e-7, 1e-7))
    mine = admission(oracle, is_exact=is_exact)
    assert not mine.admits([EXACT.float() * 1.01])
    assert oracle.chances == [1]
