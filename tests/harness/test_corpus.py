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


@pytest.mark.parametrize("path", EXPLOITS, ids=lambda path: path.stem)
def test_an_exploit_ends_in_the_class_that_its_header_names(path: Path, judge: Judge) -> None:
    verdict = judge(_header(path, "problem"), path.read_text()).verdict
    expected = _header(path, "expect")
    assert _class(verdict) in ACCEPTED.get(expected, {expected}), verdict.reason


@pytest.mark.parametrize("path", HONEST, ids=lambda path: path.stem)
def test_an_honest_twin_is_correct_and_unflagged(path: Path, judge: Judge) -> None:
    verdict = judge(_header(path, "problem"), path.read_text()).verdict
    expected = _header(path, "expect")
    if expected == "gain" and verdict.measurement and not verdict.measurement.is_stable:
        # a busy machine earns nobody a speedup; the estimate still shows it
        assert verdict.measurement.speedup > 1.0
        return
    assert _class(verdict) in ACCEPTED.get(expected, {expected}), verdict.reason
