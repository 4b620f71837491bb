"""Tests of docs/train-your-own.md: its settings are valid, and every command of it runs, tiny.

The tiny run has the page's settings, a random model of SmolLM2's architecture with its tokenizer,
a checkout of our own making with names of KernelBench, and the numbers of `tests.project.TINY`.
"""

from __future__ import annotations

import copy
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudal1.settings import profiles
from cudal1.settings.params import Params
from cudal1.settings.profiles import TrainingProfile
from cudal1.settings.settings_file import read_settings
from tests.project import ROOT, TINY, Project, copy_of_the_tree
from tests.train.foreign import tiny_smollm2

PAGE = (ROOT / "docs" / "train-your-own.md").read_text(encoding="utf-8")
MODULE = """import torch
import torch.nn as nn

batch_size = 4096
dim = 2048


class Model(nn.Module):
    def forward(self, x):
        return {}


def get_inputs():
    return [torch.rand(batch_size, dim)]


def get_init_inputs():
    return []
"""
PROBLEMS = {
    "19_ReLU": "torch.relu(x)",
    "21_Sigmoid": "torch.sigmoid(x)",
    "22_Tanh": "torch.tanh(x)",
    "25_Swish": "x * torch.sigmoid(x)",
    "29_Softplus": "torch.nn.functional.softplus(x)",
    "30_Softsign": "x / (1 + torch.abs(x))",
}
"""Modules of our own under names of KernelBench; 22 and 30 are held out."""
NOT_RUN = {
    "git": "the checkout is of our own making",
    "make": "the wheel is among what the tests need",
}
TINIER: dict[str, dict[str, Any]] = {
    "problems": {"levels": [1], "largest_trained": 64, "sizes": "sizes.yaml"},
    "policy": {"source": "tiny", "max_new_tokens": 40, "batch_size": 4},
    "scale": {"micro_batch": None, "dtype": "float32", "adapter": None, "processes": 1},
    "rl": {"num_problems": 3, "prompts_per_step": 1, "init": "sft"},
    "sft": {"max_tokens": 3072},
    "transfer": {"devices": ["cpu"]},
}
"""Changes of the page's settings for a test, beside `tests.project.TINY`. A random model has no
success for stage 2 to learn from, so reinforcement begins with stage 1's policy."""


def shown() -> list[dict[str, Any]]:
    """Return the settings that the page asks for."""
    found = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return [yaml.safe_load(block) for block in found]


def commands() -> list[list[str]]:
    """Return the page's commands, in their order."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return [shlex.split(line) for block in blocks for line in block.splitlines() if line.strip()]


def merged(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return settings with changes of any depth."""
    result = copy.deepcopy(content)
    for key, value in changes.items():
        old = result.get(key)
        both = isinstance(old, dict) and isinstance(value, dict) and "kind" not in value
        result[key] = merged(old, value) if both else copy.deepcopy(value)
    return result


@pytest.mark.parametrize("profile", ["one-gpu", "coder-7b"])
def test_the_page_s_settings_are_valid_over_a_profile(tmp_path: Path, profile: str) -> None:
    content = yaml.safe_load((ROOT / "params.yaml").read_text())
    content = merged(content, profiles.load(profile, TrainingProfile).params)
    for changes in shown():
        content = merged(content, changes)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    params = read_settings(tmp_path / "params.yaml", Params, remedy="")
    assert params.problems.split == "published"


def tiny(project: Project) -> None:
    """Give the page's settings the size of a test."""

    def shrink(params: dict[str, Any]) -> None:
        plain = yaml.safe_load((ROOT / "params.yaml").read_text())
        params.update(device="cpu", protocol=merged(plain["protocol"], TINY["protocol"]))
        without = {k: v for k, v in TINY.items() if k not in ("problems", "protocol", "search")}
        for changes in (*shown()[:1], without, TINIER):
            params.update(merged(params, changes))
        params["generate"]["providers"] = {
            "practitioner": {"kind": "rewriter", "teacher": "practitioner"},
            "released": {"kind": "replay", "path": "CUDA-L1/optimized_cuda_code/h100.json"},
        }
        params["problems"]["path"] = "KernelBench"
        methods = params["search"]["methods"]
        for name in [name for name in methods if name not in ("vanilla-sft", "evolve-bucket")]:
            del methods[name]
        for method in methods.values():
            method["provider"].update(max_tokens=40, batch_size=2)
        params["search"].update(num_problems=1, rounds=2, answers_per_round=1)

    project.edit_params(shrink)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = copy_of_the_tree(tmp_path_factory.mktemp("own"))
    level = made.folder / "KernelBench" / "KernelBench" / "level1"
    level.mkdir(parents=True)
    for name, value in PROBLEMS.items():
        (level / f"{name}.py").write_text(MODULE.format(value))
    heldout = {f"level1/{name}": {"batch_size": 64, "dim": 64} for name in PROBLEMS}
    (made.folder / "sizes.yaml").write_text(yaml.safe_dump({"cpu": heldout}))
    released = made.folder / "CUDA-L1" / "optimized_cuda_code" / "h100.json"
    released.parent.mkdir(parents=True)
    released.write_text(
        '{"level_id": 1, "task_id": 19, "ref_code": "import torch", "custom_code": '
        '"import torch\\n\\nclass ModelNew(torch.nn.Module):\\n    def forward(self, x):\\n'
        '        return torch.clamp(x, min=0)\\n"}\n'
    )
    tiny_smollm2(made.folder / "tiny")
    return made


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_command_runs_on_a_tiny_model(project: Project) -> None:
    tiny(project)
    for program, *words in commands():
        if program in NOT_RUN:
            continue
        if program == "python":
            _, module, *words = words
        else:
            module = {"cudal1": "cudal1.cli", "dvc": "dvc"}[program]
        done = project.run(module, *words)
        assert done.returncode in ((0, 1) if "doctor" in words else (0,)), done.stdout
        if words[:2] == ["training", "use"]:
            tiny(project)
    assert project.metrics("problems")["num_heldout"] == 2
    assert project.metrics("filter")["num_kept"] > 0
