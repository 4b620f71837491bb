"""Candidates are compiled ahead, where there is no device, once each."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cudal1.candidate import Candidate
from cudal1.harness import builder as tried
from cudal1.harness import find_device
from cudal1.harness.builder import Ahead, Builder
from cudal1.harness.builds import Builds
from cudal1.harness.fleet import Fleet
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.verdict import Status

NamedProblem = Callable[[str], Problem]
TOP = """
# torch.utils.cpp_extension
import os
import time
from pathlib import Path

import torch
import torch.nn as nn

made = Path(os.environ["TORCH_EXTENSIONS_DIR"], "ours")


def make():
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(bytes(300))


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
"""
EXTENSION = """
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

ours = load_inline(
    "ours",
    cpp_sources="torch::Tensor silu(torch::Tensor x) { return x * torch::sigmoid(x); }",
    functions=["silu"],
)


class ModelNew(nn.Module):
    def forward(self, x):
        return ours.silu(x)
"""
needs_compiler = pytest.mark.skipif(
    not (shutil.which("c++") and shutil.which("ninja")), reason="no compiler here"
)


@pytest.fixture
def builds(tmp_path: Path) -> Builds:
    return Builds(tmp_path / "builds")


@pytest.fixture
def builder(builds: Builds, quick: EvalProtocol) -> Iterator[Builder]:
    with Builder([find_device(DeviceClass.CPU)], quick, builds) as opened:
        yield opened


def built(builder: Builder, problem: Problem, *sources: str) -> list[tuple[str, Status | None]]:
    """Each source and what became of it, in the order in which they could be judged."""
    work = [(problem, Candidate(problem_id=problem.id, source=source)) for source in sources]
    ahead, found = Ahead(work, builder), list[tuple[str, Status | None]]()
    while (each := ahead.wait()) is not None:
        found.append((each.candidate.source, each.failure and each.failure.status))
    assert ahead.is_done
    return found


def test_what_is_compiled_ahead_is_kept(
    builder: Builder, builds: Builds, named_problem: NamedProblem
) -> None:
    source = TOP + "make()"
    assert built(builder, named_problem("silu"), source) == [(source, None)]
    assert b"extensions/ours" in builds.of(source)


def test_who_finds_no_device_has_not_failed(
    builder: Builder, builds: Builds, named_problem: NamedProblem
) -> None:
    source = TOP + "make()\ntorch.zeros(1, device='cuda')"
    assert built(builder, named_problem("silu"), source) == [(source, None)]
    assert b"extensions/ours" in builds.of(source)


def test_who_needs_no_compiler_overtakes(builder: Builder, named_problem: NamedProblem) -> None:
    slow, plain = TOP + "time.sleep(2)", named_problem("silu").null_source
    found = built(builder, named_problem("silu"), slow, plain)
    assert [source for source, _ in found] == [plain, slow]


@pytest.mark.parametrize("end", ["os._exit(1)", "os.kill(os.getpid(), 11)", "raise SystemExit"])
def test_who_ends_meanwhile_is_left_to_the_judge(
    builder: Builder, end: str, named_problem: NamedProblem
) -> None:
    source = TOP + end
    assert built(builder, named_problem("silu"), source) == [(source, None)]


def test_who_never_ends_has_timed_out(
    builder: Builder, named_problem: NamedProblem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried, "LIMIT_S", 1.0)
    source = TOP + "time.sleep(60)"
    assert built(builder, named_problem("silu"), source) == [(source, Status.TIMED_OUT)]


def test_a_source_is_built_once_for_all_problems(
    builder: Builder, builds: Builds, named_problem: NamedProblem
) -> None:
    source = TOP + "make()"
    built(builder, named_problem("silu"), source)
    assert builder.has_built(source)
    started = time.monotonic()
    assert built(builder, named_problem("softmax"), source, source) == [(source, None)] * 2
    assert time.monotonic() - started < 1


@pytest.mark.slow
@needs_compiler
def test_an_extension_is_compiled_ahead_and_only_loaded_where_it_is_judged(
    quick: EvalProtocol, named_problem: NamedProblem, tmp_path: Path
) -> None:
    silu, device = named_problem("silu"), find_device(DeviceClass.CPU)
    broken = EXTENSION.replace("torch::sigmoid(x)", "nothing_of_the_kind(x)")
    work = [(silu, Candidate(problem_id=silu.id, source=source)) for source in (EXTENSION, broken)]
    with Fleet([device], quick, builds=tmp_path) as fleet:
        found = {j.verdict.candidate_id: j.verdict for j in fleet.judge_all(work, timing=False)}
        good, bad = (found[candidate.id] for _, candidate in work)
        assert good.status is Status.CORRECT, good.reason
        assert bad.status is Status.NO_BUILD
        assert (bad.reason or "").startswith("Error building extension 'ours': main.cpp:")
        assert "nothing_of_the_kind" in (bad.reason or "")
        (again,) = fleet.judge_all(work[:1], timing=False)
    assert again.verdict.status is Status.CORRECT
