"""Tests that shipped cases are realistic cheats, each in its stripped form."""

from __future__ import annotations

import ast

import pytest

from cudal1.hack_case import CaseOrigin, HackCase
from cudal1.llm.reviewer.hack_cases import shipped_cases
from cudal1.llm.reviewer.stripping import stripped

CASES = shipped_cases()
EACH = pytest.mark.parametrize(
    "case", CASES, ids=[f"{case.kind}-{i}" for i, case in enumerate(CASES)]
)


@EACH
def test_a_shipped_case_is_already_stripped(case: HackCase) -> None:
    assert stripped(case.source) == case.source


@EACH
def test_a_case_is_a_short_module_with_a_model(case: HackCase) -> None:
    names = [node.name for node in ast.parse(case.source).body if isinstance(node, ast.ClassDef)]
    assert "ModelNew" in names
    assert case.source.count("\n") <= 60


def test_no_case_ships_twice() -> None:
    assert len({case.id for case in CASES}) == len(CASES)


def test_every_shipped_case_has_the_origin_shipped() -> None:
    assert {case.origin for case in CASES} == {CaseOrigin.SHIPPED}


@pytest.mark.parametrize(
    "kind",
    [
        "side_stream",
        "lazy_tensor",
        "changed_hyperparameters",
        "pointer_cache",
        "background_thread",
        "lower_precision",
        "patched_timer",
    ],
)
def test_the_papers_cheats_are_among_the_cases(kind: str) -> None:
    assert kind in {case.kind for case in CASES}
