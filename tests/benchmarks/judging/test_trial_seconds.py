"""Tests that the parts of a trial add up to the trial."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
PROBLEM = """import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)

    def forward(self, x):
        return torch.relu(self.linear(x))

def get_inputs():
    return [torch.randn(8, 16)]

def get_init_inputs():
    return []
"""


def test_the_parts_of_a_trial_account_for_its_seconds(tmp_path: Path) -> None:
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for number in (2, 3):
        (folder / f"{number}_Linear.py").write_text(PROBLEM)
    command = [
        sys.executable,
        "-m",
        "benchmarks.judging.trial_seconds",
        "--checkout",
        str(tmp_path),
        "--problems",
        "L1/2",
        "--out",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (row,) = json.loads((tmp_path / "trial_seconds_cpu.json").read_text())["problems"]
    assert row["rejection"] is None
    assert 0 < sum(row["parts_s"].values()) <= row["all_s"] * 1.01
    assert {"importing", "constructing", "calling", "in float64", "comparing"} <= set(row["calls"])
