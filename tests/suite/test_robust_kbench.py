"""Tests of robust-kbench's tasks as problems, on made-up tasks of its form."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

from cudal1.errors import SuiteError
from cudal1.problem import DeviceClass, Problem, Split, Unreadable
from cudal1.suite import robust_kbench

TASK = """import torch
from torch import nn


def forward_fn(x, weight):
    return x * weight


class Model(nn.Module):
    def __init__(self, width, scale=1.0, init_method="standard"):
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), scale))
        self.method = init_method

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight)


def get_inputs(rows: int = 16, width: int = 64):
    return [torch.ones(rows, width)]


input_names = ["x"]
"""
CONFIG: dict[str, Any] = {
    "single_input_configs": [{"rows": 2}, {"rows": 3}],
    "single_init_configs": [{"init_method": "random"}],
    "single_shared_configs": [{"width": 5}],
}


def task(root: Path, name: str, config: object = CONFIG, source: str = TASK) -> Path:
    folder = root / "tasks" / name
    folder.mkdir(parents=True)
    (folder / "func_forward.py").write_text(source)
    (folder / "config_forward.json").write_text(json.dumps(config))
    return folder


def load(root: Path, **more: Any) -> list[Problem]:
    return robust_kbench.load(root, device_class=DeviceClass.CPU, named="--suite", **more)


def test_a_problem_has_the_arguments_of_the_first_configuration(tmp_path: Path) -> None:
    task(tmp_path, "layernorm")
    (problem,) = load(tmp_path)
    module = types.ModuleType("problem")
    exec(problem.source, module.__dict__)
    (x,) = module.get_inputs()
    assert x.shape == (2, 5)
    assert module.get_init_inputs() == [5, 1.0, "random"]
    assert module.Model(*module.get_init_inputs())(x).shape == (2, 5)


def test_levels_and_numbers_tell_kernelbenchs_tasks_from_others(tmp_path: Path) -> None:
    folder = task(tmp_path, "kernelbench/level_2/task_7")
    (folder / "7_Conv_ReLU.py").write_text("")
    task(tmp_path, "unet")
    task(tmp_path, "layernorm")
    places = [(problem.level, problem.number, problem.name) for problem in load(tmp_path)]
    assert places == [(2, 7, "conv_relu"), (3, 1, "layernorm"), (3, 2, "unet")]


def test_kernelbenchs_held_out_problems_are_held_out(tmp_path: Path) -> None:
    task(tmp_path, "kernelbench/level_1/task_7")
    task(tmp_path, "kernelbench/level_1/task_8")
    task(tmp_path, "own")
    found = load(tmp_path, heldout=["level1/7_Conv", "level3/1_MLP"])
    assert [problem.split for problem in found] == [Split.HELDOUT, Split.TRAIN, Split.TRAIN]


def test_a_backward_pass_is_named_with_its_reason(tmp_path: Path) -> None:
    (task(tmp_path, "layernorm") / "func_backward.py").write_text("")
    forward, backward = load(tmp_path)
    assert not isinstance(forward, Unreadable)
    assert isinstance(backward, Unreadable)
    assert "backward pass" in backward.flaw


@pytest.mark.parametrize(
    ("config", "source", "flaw"),
    [
        ({}, TASK, "has no single_shared_configs"),
        ({**CONFIG, "single_input_configs": [{"depth": 1}]}, TASK, "has no parameter depth"),
        ({**CONFIG, "single_init_configs": [{"depth": 1}]}, TASK, "takes no depth"),
        (CONFIG, "class Model: ...\n", "has no get_inputs"),
        (CONFIG, "def", "is no Python"),
    ],
)
def test_a_broken_task_costs_only_itself(
    tmp_path: Path, config: object, source: str, flaw: str
) -> None:
    task(tmp_path, "broken", config, source)
    task(tmp_path, "whole")
    broken, whole = load(tmp_path)
    assert isinstance(broken, Unreadable)
    assert flaw in broken.flaw
    assert not isinstance(whole, Unreadable)


def test_a_folder_without_tasks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SuiteError, match="give --suite a checkout of robust-kbench"):
        load(tmp_path)
