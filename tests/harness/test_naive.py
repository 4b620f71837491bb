"""The corpus is alive: cheats that the judge stops do fool a harness that trusts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from cudal1.problem import Problem, resize
from tests.harness.corpus import EXPLOITS, FOLDER, Case

TRIED = [case for case in EXPLOITS if case.naive_modes is not None]
FASTER = 1.2
SIZES = {"softmax": {"N": 1024}}
"""Wide enough for a loose absolute tolerance to accept zeros."""
KNOWN_MODES = {"batch", "gains", "last", "signed", "wrong"}


@pytest.fixture(scope="module")
def naive_results(
    named_problem: Callable[[str], Problem], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    tried = []
    for case in TRIED:
        problem = named_problem(case.problem)
        tried.append({
            "name": case.name, "device": problem.device_class.value,
            "modes": sorted(case.naive_modes or ()), "candidate": case.source,
            "reference": resize(problem.source, SIZES.get(case.problem, {}), where=case.problem),
        })  # fmt: skip
    finished = subprocess.run(
        [sys.executable, FOLDER / "naive.py"], input=json.dumps(tried), text=True,
        capture_output=True, check=True, cwd=tmp_path_factory.mktemp("naive"), timeout=800,
        env={**os.environ, "SOME_API_KEY": "x", "PYTHONPATH": str(FOLDER.parents[1])},
    )  # fmt: skip
    return json.loads(finished.stdout)


@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_an_exploit_fools_a_naive_harness(
    case: Case, naive_results: dict[str, list[dict[str, Any]]]
) -> None:
    tries = naive_results[case.name]
    accepted = [found for found in tries if found["status"] == "correct"]
    assert accepted, tries
    # what the judge may find correct must have gained by its cheat, unless it is wrong
    modes = case.naive_modes or set()
    if "gains" in modes or ("no_gain" in case.accepted and "wrong" not in modes):
        assert max(found["speedup"] for found in accepted) > FASTER, tries


def test_an_exploit_that_is_not_tried_says_why() -> None:
    assert [c.name for c in EXPLOITS if c.naive_modes is None and not c.why_not_naive] == []
    assert set().union(*(case.naive_modes or () for case in TRIED)) <= KNOWN_MODES
