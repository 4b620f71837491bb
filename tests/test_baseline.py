"""Tests that a baseline is the problem's reference, run in another way."""

from __future__ import annotations

import types
from typing import Any

import pytest
import torch

from cudal1 import baseline
from cudal1.baseline import Baseline, as_candidate
from cudal1.problem import DeviceClass, Problem, Split

SOURCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.linear = nn.Linear(size, size)

    def forward(self, x):
        return torch.relu(self.linear(x))
"""


@pytest.fixture
def problem() -> Problem:
    return Problem(
        suite="s",
        level=1,
        number=1,
        name="n",
        split=Split.TRAIN,
        device_class=DeviceClass.CPU,
        revision="r",
        source=SOURCE,
    )


def defined(source: str) -> Any:
    namespace = types.ModuleType("tried")
    exec(compile(source, "<tried>", "exec"), namespace.__dict__)
    return namespace


@pytest.mark.parametrize("each", Baseline)
def test_a_baseline_has_the_weights_of_the_reference(problem: Problem, each: Baseline) -> None:
    tf32 = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    benchmark = torch.backends.cudnn.benchmark
    try:
        tried = defined(as_candidate(problem, each).source)
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = tf32
        torch.backends.cudnn.benchmark = benchmark
    torch.manual_seed(3)
    expected = defined(SOURCE).Model(5).state_dict()
    torch.manual_seed(3)
    found = tried.ModelNew(5).state_dict()
    assert found.keys() == expected.keys()
    assert all(value.equal(expected[name]) for name, value in found.items())


def test_each_baseline_is_its_own_candidate_and_no_copy(problem: Problem) -> None:
    ids = {as_candidate(problem, each).id for each in Baseline}
    plain = {problem.source, problem.null_source}
    assert len(ids) == len(Baseline)
    assert not plain & {as_candidate(problem, each).source for each in Baseline}


def test_only_a_gpu_runs_the_baselines_that_need_one() -> None:
    assert baseline.on(DeviceClass.CPU) == [Baseline.EAGER, Baseline.COMPILE]
    assert baseline.on(DeviceClass.CUDA) == list(Baseline)
