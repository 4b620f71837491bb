"""Fixtures: a class of a program, and records of versions of it without a judge's hours."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from cudal1.applying import records
from cudal1.candidate import Candidate
from cudal1.kept import Kept, Proof, class_source_id
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import Mode
from cudal1.record import content_id
from cudal1.settings import protocols
from cudal1.suite.loader import load_file
from cudal1.verdict import Properties, Verdict
from tests.services.kept_verdicts import verdict_of

PROGRAM = """import torch
from torch import nn


class Norm(nn.Module):
    def __init__(self, size, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size))
        self.eps = eps

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Gated(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate = nn.Linear(size, size, bias=False)
        self.up = nn.Linear(size, size, bias=False)

    def forward(self, x):
        return torch.sigmoid(self.gate(x)) * self.up(x)


class Scaled(nn.Module):
    def forward(self, x, y, times=2):
        return x * y * (times[0] if isinstance(times, list) else times)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = Norm(size)
        self.gated = Gated(size)

    def forward(self, x):
        return x + self.gated(self.norm(x))
"""
PROBLEM = """import torch
from {module} import {name} as Model


def get_inputs():
    return [torch.randn({shape})]


def get_init_inputs():
    return [{size}]
"""
NORM = """import torch
from torch import nn

CALLS = []


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(size))

    def forward(self, x):
        CALLS.append(tuple(x.shape))
        return nn.functional.rms_norm(x, x.shape[-1:], self.weight, 1e-6)
"""
GATED = """import torch
from torch import nn

CALLS = []


class ModelNew(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.gate = nn.Linear(size, size, bias=False)
        self.up = nn.Linear(size, size, bias=False)

    def forward(self, x):
        CALLS.append(tuple(x.shape))
        both = x @ torch.cat([self.gate.weight, self.up.weight]).T
        gate, up = both.chunk(2, -1)
        return gate.sigmoid_() * up
"""
SIZE = 16
SHAPES = ("2, 4, 16", "1, 4, 16")
Keep = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield a module of a user's program, which can be imported by name."""
    name = f"program_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(name)
    del sys.modules[name]


@pytest.fixture
def keep(tmp_path: Path, program: Any) -> Keep:
    """Return a function that writes a record of a version, with a made-up verdict."""

    def keep(
        source: str = NORM,
        *,
        name: str = "Norm",
        shapes: tuple[str, ...] = SHAPES,
        mode: Mode = Mode.EVAL,
        size: int | str = SIZE,
        properties: dict[str, bool | None] | None = None,
        proof_changes: dict[str, Any] | None = None,
        **changes: Any,
    ) -> Path:
        folder = tmp_path / "kept"
        folder.mkdir(exist_ok=True)
        protocol = protocols.load("cpu").model_copy(update={"mode": mode})
        proofs: list[Proof] = []
        for number, shape in enumerate(shapes):
            path = folder / f"{name.lower()}_{number}.py"
            text = PROBLEM.format(module=program.__name__, name=name, shape=shape, size=size)
            path.write_text(text)
            problem = load_file(path, device_class=DeviceClass.CPU)
            proof = Proof(
                problem=path.name,
                problem_id=problem.id,
                device_class=DeviceClass.CPU,
                inputs=(f"float32[{shape}]",),
                protocol=protocol,
                verdict=judged(problem, source, properties or {}),
                versions={},
            )
            proofs.append(proof.model_copy(update=proof_changes or {}))
        kept = Kept(
            version=f"{name.lower()}.faster.py",
            candidate_source_id=content_id(source),
            replaces=f"{program.__name__}:{name}",
            replaces_source_id=class_source_id(inspect.getsource(getattr(program, name))),
            proofs=tuple(proofs),
        )
        return records.write(folder, name.lower(), source, kept.model_copy(update=changes))

    return keep


def judged(problem: Problem, source: str, properties: dict[str, bool | None]) -> Verdict:
    candidate = Candidate(problem_id=problem.id, source=source)
    seen = {"follows_weights": True, "fresh_outputs": True, "leaves_inputs": True, **properties}
    return verdict_of(candidate, properties=Properties.model_validate(seen))


def calls_of(source: str) -> list[tuple[int, ...]]:
    """Return the shapes of the calls of a version that notes them."""
    module = sys.modules[f"cudal1_kept_{content_id(source)}"]
    calls: list[tuple[int, ...]] = module.CALLS
    return calls


def forget(source: str) -> None:
    """Forget what a version noted in an earlier test."""
    sys.modules.pop(f"cudal1_kept_{content_id(source)}", None)


@pytest.fixture(autouse=True)
def fresh() -> None:
    for source in (NORM, GATED):
        forget(source)


@pytest.fixture
def block(program: Any) -> nn.Module:
    made: nn.Module = program.Block(SIZE).eval()
    return made
