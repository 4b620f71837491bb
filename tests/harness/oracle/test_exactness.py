"""Float64 answers come first where the check says so, and decide wherever outputs disagree."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from cudal1.harness.oracle import exactness
from cudal1.harness.oracle.answering import NUM_CHANCES
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
    assert not mine.admits([EXACT.float() * 1.005])
    assert sum(oracle.chances) == NUM_CHANCES


def widened_for(oracle: Answers, off_by: float, **most: int) -> None:
    """Widen a key for an output that is off by so much."""
    draw = SimpleNamespace()
    widening = Widening(cast("Oracle", oracle), cast("Draw", draw), [(EXACT, NONE)], **most)
    widening.key(lambda key: key[0][1].relative_l2 >= off_by)


@pytest.mark.parametrize(
    ("off_by", "chances"), [(1e-4, [1]), (5e-4, [1, 1, 2, 4]), (0.02, [1, 1, 2, 4]), (0.04, [1])]
)
def test_chances_are_taken_until_they_explain_an_output_or_one_says_that_no_luck_does(
    off_by: float, chances: list[int]
) -> None:
    oracle = Answers(by_chance=ReferenceError(1e-4, 1e-4))
    widened_for(oracle, off_by)
    assert oracle.chances == chances


def test_a_first_chance_without_error_does_not_end_the_search_where_the_reference_errs() -> None:
    class Erring(Answers):
        """An oracle of which the reference's own error is known."""

        def widened(self, key: Any, errors: Any) -> Any:
            own = ReferenceError(1e-6, 1e-6)
            return super().widened(key, [own.larger(error) for error in errors])

    oracle = Erring(by_chance=NONE)
    widened_for(oracle, 2e-4)
    assert sum(oracle.chances) == NUM_CHANCES


@pytest.mark.parametrize(("most", "chances"), [(2, [1, 1]), (3, [1, 1]), (4, [1, 1, 2])])
def test_no_more_chances_are_taken_than_are_allowed(most: int, chances: list[int]) -> None:
    oracle = Answers(by_chance=ReferenceError(1e-4, 1e-4))
    widened_for(oracle, 5e-4, most=most)
    assert oracle.chances == chances


@pytest.mark.parametrize(("many", "count"), [(64, 8), (63, 4), (32, 4), (31, 2), (8, 2), (1, 2)])
def test_a_trial_takes_fewer_chances_of_outputs_with_many_elements(
    many: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactness, "MANY_ELEMENTS", many)
    oracle = Answers(by_chance=ReferenceError(1e-4, 1e-4))
    assert not admission(oracle, is_exact=True).admits([EXACT.float() * 1.01])
    assert sum(oracle.chances) == count


@pytest.mark.parametrize("is_exact", [False, True])
def test_one_chance_is_enough_where_no_luck_explains_an_output(is_exact: bool) -> None:
    oracle = Answers(by_chance=ReferenceError(1e-7, 1e-7))
    mine = admission(oracle, is_exact=is_exact)
    assert not mine.admits([EXACT.float() * 1.01])
    assert oracle.chances == [1]
