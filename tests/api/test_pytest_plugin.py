"""Tests of the pytest plugin: which tests it fails, and in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.api.pytest_plugin import _complaint
from tests.cli.conftest import FASTER, PROBLEM
from tests.ledger.conftest import Facts

pytest_plugins = "pytester"
ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_a_test_passes_or_fails_with_the_verdict_s_reason(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    wrong = FASTER.replace("torch.nn.functional.silu(x)", "x").replace("ModelNew", "Wrong")
    pytester.makepyfile(
        f"import pytest\nimport cudal1\n{PROBLEM}\n{FASTER}\n{wrong}\n"
        "def test_right(assert_faster):\n"
        "    verdict = assert_faster(Model, ModelNew, get_inputs, timing=False)\n"
        "    assert verdict.is_successful\n\n\n"
        "def test_wrong(assert_faster):\n"
        "    assert_faster(Model, Wrong, get_inputs, timing=False)\n"
    )
    # where cudal1 is installed its entry point has the same name
    plugin = ("-p", "no:cudal1", "-p", "cudal1.api.pytest_plugin")
    done = pytester.runpytest_subprocess(*plugin, "-p", "no:cacheprovider")
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["not correct: incorrect: wrong output: *"])
    done.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_a_gain_below_the_one_that_is_asked_for_is_told_with_its_times() -> None:
    facts = Facts()
    verdict = facts.correct(facts.candidate(), 1.1)
    assert _complaint(verdict, 1.1) is None
    assert _complaint(verdict, 1.2) == (
        "correct, but certified 1.1x as fast at 99% confidence, and 1.2x is asked for (estimate "
        "1.15x: 20 us with 18 us a call)"
    )


def test_a_failure_is_told_with_its_reason() -> None:
    facts = Facts()
    verdict = facts.failed(facts.candidate())
    assert _complaint(verdict, 1.0) == "not correct: crashed: ValueError: no"
