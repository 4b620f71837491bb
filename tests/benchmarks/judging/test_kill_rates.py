"""Tests that kill rates are counted inside domains and anywhere, and that no mutant runs twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.ablation.memory import Lines
from benchmarks.common import own
from benchmarks.judging import kill_rates as bench
from cudal1.harness.device.device import find_device
from cudal1.kill_table import KillTable, Mutant
from cudal1.problem import DeviceClass
from cudal1.protocol import PrecisionClass
from cudal1.settings import protocols

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.tanh(x @ x)


def get_inputs():
    return [torch.nn.functional.one_hot(torch.randperm(16)).float()]


def get_init_inputs():
    return []
"""
PERMUTATION = "torch.nn.functional.one_hot(torch.randperm(16)).float()"
DENSE = PROBLEM.replace(PERMUTATION, "torch.randn(9, 9)")
ENDS = PROBLEM.replace("return [", "import os; os._exit(1); return [")


@pytest.mark.slow
def test_both_kill_rates_of_each_problem_are_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device, protocol = find_device(DeviceClass.CPU), protocols.load("cpu")
    texts = {"dense": DENSE, "ends": ENDS, "permutation": PROBLEM}
    problems = [own(name, text, device) for name, text in texts.items()]

    tries = Lines(tmp_path / "tries.jsonl")
    rows = bench.try_all(problems, protocol, device, tries)

    dense, ends, permutation = rows
    assert dense["invariants"] == []
    assert dense["inside"] == dense["anywhere"]
    assert dense["inside"]["num_killed"] == dense["inside"]["num_applied"] > 10
    assert "ends the process" in ends["inside"]["reason"]
    assert "values in {0, 1}" in permutation["invariants"][0]
    assert permutation["inside"]["num_families"] == 1
    assert permutation["anywhere"]["num_families"] > 5

    found = bench.summary("benchmark", 1, rows)
    assert (found["num_problems"], found["num_tried"], found["num_with_invariants"]) == (3, 2, 1)

    monkeypatch.setattr(bench, "_tried", lambda problems, _: iter(zip(problems, [], strict=True)))
    assert bench.try_all(problems, protocol, device, Lines(tries.path)) == rows


def test_mutants_that_do_not_apply_are_not_counted() -> None:
    killed = Mutant(name="zeros", killed=True, family="own", num_inputs=1)
    later = Mutant(name="mean", killed=True, family="large", num_inputs=4)
    alive = Mutant(name="stale", killed=False, num_inputs=32)
    table = KillTable(
        problem_id="p",
        precision=PrecisionClass.STRICT,
        mutants=(killed, later, alive, Mutant(name="half", killed=None)),
    )

    found = bench.counts(table, ["own", "large"])

    assert (found["num_applied"], found["num_killed"], found["num_killed_by_own"]) == (3, 2, 1)
    assert (found["mean_inputs"], found["survivors"]) == (2.5, ["stale"])
