"""The corpus is alive: cheats that the judge stops do fool a harness that trusts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cudal1.problem import Problem, resize

FOLDER = Path(__file__).parent
EXPLOITS = sorted((FOLDER / "exploits").glob("*.py"))
NOT_TRIED = {
    "answer_search": "which tensor is found first depends on the interpreter's heap",
    "batch_and_skip": "made for our own worker's loop",
    "busy_outside": "there nobody measures the reference beside it",
    "early_done": "made for our own worker's counters",
    "file_replay": "a file is no faster than this cheap problem",
    "judge_memory": "would read processes that are not ours",
    "last_call_only": "made for our own worker's loop",
    "network": "would talk to strangers",
    "overwritten_files": "would overwrite the installation",
    "reads_files": "would read what is not ours",
    "scribbled_words": "made for our own worker's counters",
    "timer_wakes": "nobody is stopped there",
    "uninitialised": "what free memory holds is a matter of luck",
}
TRIED = [path for path in EXPLOITS if path.stem not in NOT_TRIED]
FASTER = 1.2
SIZES = {"softmax": {"N": 1024}}
"""Wide enough for a loose absolute tolerance to accept zeros."""


def _header(path: Path, name: str) -> str:
    found = re.search(rf"^{name}: *(\S*)$", path.read_text(), re.MULTILINE)
    assert found
    return found.group(1)


@pytest.fixture(scope="module")
def naive_results(
    named_problem: Callable[[str], Problem], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    cases = []
    for path in TRIED:
        problem = _header(path, "problem")
        reference = resize(named_problem(problem).source, SIZES.get(problem, {}), where=problem)
        cases.append({"name": path.stem, "reference": reference, "candidate": path.read_text()})
    finished = subprocess.run(
        [sys.executable, FOLDER / "naive.py"], input=json.dumps(cases), text=True,
        capture_output=True, check=True, cwd=tmp_path_factory.mktemp("naive"), timeout=200,
    )  # fmt: skip
    return json.loads(finished.stdout)


@pytest.mark.parametrize("path", TRIED, ids=lambda path: path.stem)
def test_an_exploit_fools_a_naive_harness(
    path: Path, naive_results: dict[str, list[dict[str, Any]]]
) -> None:
    tries = naive_results[path.stem]
    accepted = [found for found in tries if found["status"] == "correct"]
    assert accepted, tries
    # what the judge may find correct must have gained by its cheat
    if _header(path, "expect") in {"no_gain", "stopped"}:
        assert max(found["speedup"] for found in accepted) > FASTER, tries


def test_every_exploit_that_is_not_tried_exists() -> None:
    assert set(NOT_TRIED) <= {path.stem for path in EXPLOITS}
