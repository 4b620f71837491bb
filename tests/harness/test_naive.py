"""Cheats that the judge stops do fool a harness that trusts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cudal1.problem import Problem, resize
from tests.harness.corpus import EXPLOITS, FOLDER, Case

TRIED = [case for case in EXPLOITS if case.naive_modes is not None]
FASTER = 1.2
SIZES = {"softmax": {"N": 1024}}
"""Sizes of problems, by name: wide enough for a loose absolute tolerance to accept zeros."""
KNOWN_MODES = {"batch", "gains", "last", "signed", "wrong"}


NUM_AGAIN = 10
"""Further tries of a cheat. A busy machine may hide its gain, and the naive harness cannot tell."""
Results = dict[str, list[dict[str, Any]]]
Naive = Callable[[Sequence[Case]], Results]


@pytest.fixture(scope="module")
def naive_results(naive: Naive) -> Results:
    return naive(TRIED)


@pytest.fixture(scope="module")
def naive(
    named_problem: Callable[[str], Problem], tmp_path_factory: pytest.TempPathFactory
) -> Naive:
    return lambda wanted: _tried(wanted, named_problem, tmp_path_factory.mktemp("naive"))


def _tried(
    wanted: Sequence[Case], named_problem: Callable[[str], Problem], folder: Path
) -> Results:
    tried = []
    for case in wanted:
        problem = named_problem(case.problem)
        tried.append(
            {
                "name": case.name,
                "device": problem.device_class.value,
                "modes": sorted(case.naive_modes or ()),
                "candidate": case.source,
                "reference": resize(
                    problem.source, SIZES.get(case.problem, {}), where=case.problem
                ),
            }
        )
    finished = subprocess.run(
        [sys.executable, FOLDER / "naive.py"],
        input=json.dumps(tried),
        text=True,
        capture_output=True,
        check=True,
        cwd=folder,
        timeout=800,
        env={**os.environ, "SOME_API_KEY": "x", "PYTHONPATH": str(FOLDER.parents[1])},
    )
    return json.loads(finished.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("case", TRIED, ids=lambda case: case.name)
def test_an_exploit_fools_a_naive_harness(case: Case, naive_results: Results, naive: Naive) -> None:
    def lacks() -> str:
        accepted = [found for found in tries if found["status"] == "correct"]
        if not accepted:
            return "accepted"
        # a cheat that the judge may find correct must have gained, unless its output is wrong
        modes = case.naive_modes or set()
        needs_gain = "gains" in modes or ("no_gain" in case.accepted and "wrong" not in modes)
        gained = max(found["speedup"] for found in accepted) > FASTER
        return "" if gained or not needs_gain else "gained"

    tries = list(naive_results[case.name])
    for _ in range(NUM_AGAIN):
        if lacks():
            tries += naive([case])[case.name]
    assert not lacks(), tries


def test_an_exploit_that_is_not_tried_says_why() -> None:
    assert [c.name for c in EXPLOITS if c.naive_modes is None and not c.why_not_naive] == []
    assert set().union(*(case.naive_modes or () for case in TRIED)) <= KNOWN_MODES
