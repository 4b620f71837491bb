"""Tests of the suites that a user names."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudal1.cli.options.suites import load_named
from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass


def test_a_checkout_may_be_named_relative_to_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem_source: str
) -> None:
    file = tmp_path / "bench" / "level1" / "1_Swish.py"
    file.parent.mkdir(parents=True)
    file.write_text(problem_source)
    monkeypatch.setenv("HOME", str(tmp_path))
    (problem,) = load_named("kernelbench:~/bench", DeviceClass.CPU, sizes=None)
    assert problem.key == "kernelbench/L1/01_swish"


def test_a_missing_checkout_gives_the_option_as_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(SuiteError) as raised:
        load_named(f"kernelbench:{tmp_path}/none", DeviceClass.CPU, sizes=None)
    assert str(raised.value) == (
        f"{tmp_path}/none: no such folder; give --suite kernelbench:FOLDER a checkout of "
        "KernelBench"
    )
