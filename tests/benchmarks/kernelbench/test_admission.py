"""Tests of the admission of a checkout's problems: sizes, reasons, and resumption."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kernelbench import admission as bench
from benchmarks.kernelbench.admission import class_of
from benchmarks.kernelbench.sizes import sizes_of
from cudal1.suite.halving import shrunk

PROBLEM = """import torch
import torch.nn as nn

size = 1 << 40
wide = 4096


class Model(nn.Module):
    def forward(self, x):
        return {result}


def get_inputs():
    return [torch.randn(8, wide)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Make a checkout of four problems: sound, fitting in larger sizes alone, constant, broken."""
    folder = tmp_path / "checkout" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for name, result in (
        ("1_Sound", "torch.relu(x)"),
        ("2_Picky", "torch.relu(x[:, 20:])"),
        ("3_Constant", "torch.zeros_like(x)"),
    ):
        (folder / f"{name}.py").write_text(PROBLEM.format(result=result))
    (folder / "4_Broken.py").write_bytes(b"\xff")
    return tmp_path / "checkout"


def run(checkout: Path, out: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> dict[str, Any]:
    out.mkdir(exist_ok=True)
    argv = ["bench", "--checkout", str(checkout), "--out", str(out), *more]
    monkeypatch.setattr(sys, "argv", argv)
    bench.main()
    return json.loads((out / "kernelbench_admission_cpu.json").read_text())


@pytest.mark.slow
def test_every_problem_is_admitted_in_the_first_sizes_that_allow_it_or_has_a_reason(
    checkout: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = run(checkout, tmp_path / "out", monkeypatch)

    rows = [(row["number"], row["admitted"], row["largest"]) for row in found["problems"]]
    assert rows == [(1, True, 16), (2, True, 64), (3, False, 256), (4, False, 16)]
    assert found["levels"] == [
        {
            "level": 1,
            "num_loaded": 4,
            "num_admitted": 2,
            "rejected": {"the output is constant": 1, "not UTF-8 text": 1},
        }
    ]
    assert found["problems"][1]["before"] == {"16": "an output has no elements"}
    assert found["revision"]
    assert "not UTF-8 text" in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.slow
def test_a_resumed_run_does_not_repeat_finished_trials(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    probe_all, asked = bench.probe_all, list[str]()

    def first_two(problems: list[Any], **limits: float) -> Any:
        for number, pair in enumerate(probe_all(problems, **limits)):
            asked.append(pair[0].key)
            yield pair
            if number == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(bench, "probe_all", first_two)
    with pytest.raises(KeyboardInterrupt):
        run(checkout, out, monkeypatch)
    before = asked.copy()

    def all_of_them(problems: list[Any], **limits: float) -> Any:
        asked.extend(problem.key for problem in problems)
        return probe_all(problems, **limits)

    monkeypatch.setattr(bench, "probe_all", all_of_them)
    found = run(checkout, out, monkeypatch)

    assert len(before) == 2
    assert before[0] not in asked[2:]
    assert [row["admitted"] for row in found["problems"]] == [True, True, False, False]
    assert [path.name for path in out.iterdir()] == ["kernelbench_admission_cpu.json"]


@pytest.mark.slow
def test_given_sizes_replace_the_rule(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = tmp_path / "sizes.yaml"
    sizes.write_text("cpu: {level1/2_Picky: {wide: 2}}\n")

    found = run(checkout, tmp_path / "out", monkeypatch, "--sizes", str(sizes))

    assert [row["admitted"] for row in found["problems"]] == [True, False, False, False]
    assert {row["largest"] for row in found["problems"]} == {None}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["--levels", "2"], "has none of levels 2"), (["--sizes", "no.yaml"], "no.yaml: cannot be")],
)
def test_a_problem_that_cannot_be_tried_gives_one_line(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit, match=said):
        run(checkout, tmp_path / "out", monkeypatch, *arguments)


def test_numbers_above_the_bound_are_halved_until_they_are_within_it() -> None:
    source = (
        "batch = 128\nN = 2048 * 2\nhigh = wide = 48\ndeep, long = 8, 33\nshape = (64, 5)\n"
        "names = ['a']\nflag = True\nrate = 0.5\nsame = N\nx, y.z = 99, 99\nfrom a import b\n"
    )
    assert shrunk(source, 16) == {
        "batch": 16,
        "N": 16,
        "high": 12,
        "wide": 12,
        "long": 16,
        "shape": [16, 5],
    }
    assert shrunk("def (", 16) == {}


def test_a_reassigned_constant_has_its_last_value() -> None:
    assert shrunk("n = 64\nn = 4\n", 16) == {}
    assert shrunk("n = 4\nn = 64\n", 16) == {"n": 16}


def test_a_broken_file_has_no_sizes(checkout: Path) -> None:
    assert set(sizes_of(checkout, 16)) == {
        f"level1/{n}" for n in ("1_Sound", "2_Picky", "3_Constant")
    }


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("too slow: 3.11e+03 ms a call, more than 1000 ms", "too slow"),
        ("does not end within 60 s", "does not end within N s"),
        ("raises OSError: no file 7", "raises OSError"),
        ("does not depend on input 1: it moves by 0.001", "does not depend on input N"),
        ("is off by 999% from the same in float64, so", "is off by N from the same in float64, so"),
        ("not UTF-8 text (byte 3)", "not UTF-8 text"),
        ("is not valid Python (line 3)", "is not valid Python"),
    ],
)
def test_reasons_of_one_kind_share_one_class(reason: str, kind: str) -> None:
    assert class_of(reason) == kind
