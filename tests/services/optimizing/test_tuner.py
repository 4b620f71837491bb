"""Tests of the variants that the tuner chooses: each once, near what is fast."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from cudal1.candidate import Candidate
from cudal1.program.parameters import parameters
from cudal1.services.optimizing.state import Find, State
from cudal1.services.optimizing.tuner import MOST_VARIANTS, Tuner, Variant
from cudal1.verdict import Status
from tests.services.kept_verdicts import verdict_of

KERNEL = """BLOCK = {block}
NUM_WARPS = 4


class ModelNew:
    pass
"""


def judge(state: State, tuner: Tuner, source: str, speedup: float | None) -> Find:
    """Note a version with its speedup; None is a failure."""
    tuner.saw(source)
    candidate = Candidate(problem_id="p", source=source)
    verdict = (
        verdict_of(candidate, status=Status.INCORRECT)
        if speedup is None
        else verdict_of(candidate, speedup=speedup)
    )
    find = Find(candidate, verdict, "one")
    state.judged(find)
    return find


def search(
    state: State, tuner: Tuner, speedup: Callable[[dict[str, int]], float | None]
) -> list[Variant]:
    """Judge variants in turns of four, until there is none."""
    tried: list[Variant] = []
    while found := tuner.variants(state, 4):
        for variant in found:
            values = {each.name: each.value for each in parameters(variant.source)}
            judge(state, tuner, variant.source, speedup(values))
        tried += found
    return tried


@pytest.fixture
def state() -> State:
    return State()


@pytest.fixture
def tuner() -> Tuner:
    return Tuner()


def test_each_variant_is_tried_once_and_the_best_is_found(state: State, tuner: Tuner) -> None:
    judge(state, tuner, KERNEL.format(block=64), 1.2)

    def speedup(values: dict[str, int]) -> float:
        away = math.log2(values["BLOCK"] / 256), math.log2(values["NUM_WARPS"] / 8)
        return 1.5 - 0.05 * sum(map(abs, away))

    tried = search(state, tuner, speedup)
    sources = [variant.source for variant in tried]
    assert len(set(sources)) == len(sources) <= MOST_VARIANTS
    assert KERNEL.format(block=64) not in sources
    assert state.best is not None
    values = {each.name: each.value for each in parameters(state.best.candidate.source)}
    assert values == {"BLOCK": 256, "NUM_WARPS": 8}


def test_equal_verdicts_give_equal_variants_whatever_was_in_memory(
    state: State, tuner: Tuner
) -> None:
    judge(state, tuner, KERNEL.format(block=64), 1.2)
    judge(state, tuner, KERNEL.format(block=128), 1.4)
    another = Tuner()
    for find in state.finds.values():
        another.saw(find.candidate.source)
    assert tuner.variants(state, 4) == another.variants(state, 4)


def test_a_variant_that_waits_for_its_verdict_is_not_written_again(
    state: State, tuner: Tuner
) -> None:
    judge(state, tuner, KERNEL.format(block=64), 1.2)
    (first,) = tuner.variants(state, 1)
    tuner.saw(first.source)
    assert first.values not in [each.values for each in tuner.variants(state, 30)]


def test_the_fastest_version_is_tuned_first_and_the_next_skeleton_after_it(
    state: State, tuner: Tuner
) -> None:
    slow = judge(state, tuner, KERNEL.format(block=64), 1.2)
    fast = judge(state, tuner, "# tune: ROWS in 1, 2\nROWS = 1\n", 1.5)
    first = tuner.variants(state, 4)
    assert [(each.parent, each.values) for each in first] == [(fast, {"ROWS": 2})]
    judge(state, tuner, first[0].source, None)
    assert {each.parent.candidate.id for each in tuner.variants(state, 4)} == {slow.candidate.id}


@pytest.mark.parametrize(
    ("source", "speedup"),
    [(KERNEL.format(block=64), None), ("class ModelNew: ...\n", 1.5)],
    ids=["failed", "without parameters"],
)
def test_there_is_nothing_to_tune_of_a_failure_or_without_parameters(
    state: State, tuner: Tuner, source: str, speedup: float | None
) -> None:
    judge(state, tuner, source, speedup)
    assert not tuner.has_any(state)
