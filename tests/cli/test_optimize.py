"""Tests of `cudal1 optimize` as a user runs it: what is kept, and one line for each mistake."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
import torch

import cudal1
from cudal1.kept import Kept, judged_source
from cudal1.record import content_id
from cudal1.services.checking import slowdown
from tests.cli.conftest import Run, complaints

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LOOP = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.stack([torch.relu(x[i]) for i in range(x.shape[0])])


def get_inputs():
    return [torch.randn(256, 64)]


def get_init_inputs():
    return []
"""
RANDOM = LOOP.replace("torch.relu(x[i])", "torch.relu(x[i]) * torch.rand(1)")
NEEDS_GPU = LOOP.replace("torch.relu(x[i])", "torch.relu(x[i].cuda())")
CANNOT_IMPORT = "import no_such_package\n" + LOOP
PLAIN = LOOP.replace("torch.stack([torch.relu(x[i]) for i in range(x.shape[0])])", "torch.relu(x)")
TWO = ("--with", "teachers", "--verdicts", "6", "--device", "cpu")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (CANNOT_IMPORT, "install what it imports"),
        (RANDOM, "it draws randomly when it is called: try --mode eval"),
        (NEEDS_GPU, "it needs a GPU that is not here"),
        (LOOP.replace("get_inputs", "get_input"), "has no get_inputs; add get_inputs()"),
        (LOOP.replace("[torch.randn(256, 64)]", "None"), "return [x] or [x, y] from get_inputs"),
    ],
)
def test_a_module_that_cannot_be_judged_is_refused_in_one_line_with_a_remedy(
    run: Run, tmp_path: Path, source: str, said: str
) -> None:
    (tmp_path / "model.py").write_text(source)
    done = run("optimize", "model.py", "--device", "cpu")
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = complaints(done)
    assert said in line
    assert sorted(path.name for path in tmp_path.glob("model.*")) == ["model.py"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--minutes", "0"], "--minutes 0: is no budget; give more than 0"),
        (["--verdicts", "0"], "--verdicts 0: is no budget"),
        (["--usd", "1"], "charges; give --minutes or --verdicts"),
        (["--with", "gpt4"], "--with gpt4: no such provider; name teachers, embedded"),
        (["--with", "gpt-4o"], "--with gpt-4o: it charges; say what this run may spend"),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    run: Run, tmp_path: Path, options: list[str], said: str
) -> None:
    done = run("optimize", "model.py", "--device", "cpu", *options, CUDAL1_MAY_SPEND_USD="")
    assert done.returncode == 2
    (line,) = complaints(done)
    assert said in line
    assert not (tmp_path / "model.optimize").exists()


def test_a_proven_version_is_kept_with_its_record_and_page(run: Run, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(LOOP)
    done = run("optimize", "model.py", "--json", *TWO)
    assert done.returncode == 0, done.stderr
    assert "profile: " in done.stderr
    record = tmp_path / "model.faster.json"
    kept = Kept.model_validate_json(record.read_text())
    assert json.loads(done.stdout)["kept"] == json.loads(record.read_text())
    version = (tmp_path / kept.version).read_text()
    assert content_id(judged_source(version)) == kept.candidate_source_id
    (proof,) = kept.proofs
    assert proof.inputs == ("float32[256, 64]",)
    assert len(proof.sessions) == slowdown.BASELINE
    assert "10 sessions for cudal1 check" in done.stderr
    certified = proof.verdict.speedup
    assert certified is not None
    assert certified > 1
    assert f"certified {certified:.2f}x faster" in version
    assert f"certified {certified:.2f}x faster" in (tmp_path / "model.report.html").read_text()
    judged = run("judge", "model.py", kept.version, "--device", "cpu", "--json")
    assert json.loads(judged.stdout)["status"] == "correct"

    def verdicts() -> int:
        shown = run(
            "sql", "select count(*) as n from verdicts", "--data", "model.optimize", "--json"
        )
        return json.loads(shown.stdout)[0]["n"]

    before, version_before = verdicts(), version
    again = run("optimize", "model.py", "--with", "teachers", "--verdicts", "1", "--device", "cpu")
    assert again.returncode == 0, again.stderr
    assert before < verdicts() <= before + 2  # one new, and maybe one that is better
    (tmp_path / kept.version).write_text(version_before + "\n")
    edited = run("optimize", "model.py", *TWO)
    assert edited.returncode == 2
    assert "model.faster.py: was changed after it was proven" in edited.stderr


def test_without_a_proven_gain_nothing_is_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(PLAIN)
    done = run("optimize", "model.py", "--with", "teachers", "--verdicts", "2", "--device", "cpu")
    assert done.returncode == 1, done.stderr
    assert "no version was proven faster" in done.stdout
    assert not (tmp_path / "model.faster.py").exists()
    assert (tmp_path / "model.report.html").exists()


LAYERS = """import torch
from torch import nn


class ScaledBranch(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(config.width))

    def forward(self, hidden_states):
        return hidden_states + torch.matmul(hidden_states, torch.diag(self.scale))
"""
CONFIG = """from dataclasses import dataclass


@dataclass
class Config:
    width: int = 512
"""
PROGRAM = """import torch
from own_model.config import Config
from own_model.layers import ScaledBranch

with torch.no_grad():
    ScaledBranch(Config()).eval()(torch.randn(64, 512))
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write a package as transformers has them: layers that take a configuration."""
    folder = tmp_path / "own_model"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "layers.py").write_text(LAYERS)
    (folder / "config.py").write_text(CONFIG)
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_captured_class_is_optimized_and_its_version_applied(run: Run, library: Path) -> None:
    asked = ("program.py", "--module", "own_model.layers:ScaledBranch", "--out", "captured")
    done = run("capture", *asked)
    assert done.returncode == 0, done.stderr
    options = ("--contract", "drop_in", "--mode", "eval", *TWO)
    done = run("optimize", "captured/scaled_branch.py", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    said = "cudal1.apply calls it for own_model.layers:ScaledBranch in evaluation mode"
    assert said in " ".join(done.stdout.split())

    layers = importlib.import_module("own_model.layers")
    config = importlib.import_module("own_model.config").Config()
    model = torch.nn.Sequential(layers.ScaledBranch(config), torch.nn.ReLU()).eval()
    x = torch.randn(64, 512)
    with torch.no_grad():
        expected = model(x)
        with cudal1.apply(model, library / "captured") as applied:
            assert applied.refused == ()
            assert set(applied.swapped) == {"0"}
            model(x)
            torch.testing.assert_close(model(x), expected)
