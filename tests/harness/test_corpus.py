"""Every known cheat ends in its verdict class; every honest twin stays correct."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.harness import Judgement
from cudal1.verdict import Status, Verdict

Judge = Callable[[str, str], Judgement]
FOLDER = Path(__file__).parent
EXPLOITS = sorted((FOLDER / "exploits").glob("*.py"))
HONEST = sorted((FOLDER / "honest").glob("*.py"))


def _header(path: Path, name: str) -> str:
    found = re.search(rf"^{name}: *(\S*)$", path.read_text(), re.MULTILINE)
    assert found, f"{path.name} has no line `{name}:`"
    return found.group(1)


def _class(verdict: Verdict) -> str:
    if verdict.status is not Status.CORRECT:
        return str(verdict.status)
    assert verdict.speedup is not None
    return "gain" if verdict.speedup > 1.0 else "no_gain"


ACCEPTED = {
    "wrong": {"incorrect", "hacked"},
    "correct": {"gain", "no_gain"},
    "stopped": {"no_gain", *Status} - {Status.CORRECT},
}
"""Classes that stand for several; every other one stands for itself."""

NUM_TRIES = 4
"""Judgements of an honest twin until it gains: the busier the machine, the more are spoilt."""

NEEDS = {
    "busy_outside": "freezer",
    "file_socket": "seccomp",
    "judge_memory": "own_proc",
    "network": "own_network",
    "other_devices": "own_devices",
    "overwritten_files": "read_only_files",
    "reads_files": "landlock",
    "second_core": "seccomp",
    "timer_wakes": "seccomp",
}
"""Exploits that must not even be tried where kernel or user do not grant the layer against them."""


@pytest.fixture(scope="module")
def layers(judge: Judge) -> tuple[str, ...]:
    return judge("silu", "class ModelNew: pass").verdict.sandbox


@pytest.mark.parametrize("path", EXPLOITS, ids=lambda path: path.stem)
def test_an_exploit_ends_in_the_class_that_its_header_names(
    path: Path, judge: Judge, layers: tuple[str, ...]
) -> None:
    if NEEDS.get(path.stem, layers[0]) not in layers:
        pytest.skip(f"this machine grants no layer {NEEDS[path.stem]}")
    verdict = judge(_header(path, "problem"), path.read_text()).verdict
    expected = _header(path, "expect")
    assert _class(verdict) in ACCEPTED.get(expected, {expected}), verdict.reason


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_twin_is_correct_and_unflagged(
    path: Path, judge: Judge, skip_if_busy: Callable[[str], None]
) -> None:
    expected = _header(path, "expect")
    accepted = ACCEPTED.get(expected, {expected})
    for _ in range(NUM_TRIES):
        verdict = judge(_header(path, "problem"), path.read_text()).verdict
        assert _class(verdict) in ACCEPTED["correct"], verdict.reason
        if _class(verdict) in accepted:
            return
    skip_if_busy(_header(path, "problem"))
    pytest.fail(f"not certified on a quiet machine: {verdict.measurement}")
