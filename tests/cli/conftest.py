"""Fixtures: a folder with two files, and the command as a user runs it there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from cudal1.cli.terminal import answer

ROOT = Path(__file__).parents[2]
PROGRESS = re.compile(r"[a-z ]+: (\d+ of \d+(, .+ (left|so far))?|\d+ s so far)")
"""A line of progress, as a command writes it off a terminal."""
COMMAND = (sys.executable, "-m", "cudal1.cli")
PROBLEM = """import torch
import torch.nn as nn

N = 64


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return []
"""
FASTER = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(autouse=True)
def own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the streams of a command that ran in this process from later tests."""
    monkeypatch.setattr(answer, "_stream", None)


@pytest.fixture
def problem_source() -> str:
    return PROBLEM


@pytest.fixture
def faster_source() -> str:
    return FASTER


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "locks").mkdir()
    (tmp_path / "model.py").write_text(PROBLEM)
    (tmp_path / "faster.py").write_text(FASTER)
    return list(COMMAND)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return environment_in(tmp_path / "locks")


@pytest.fixture
def run(command: list[str], environment: dict[str, str], tmp_path: Path) -> Run:
    def run(*arguments: str, **others: str) -> subprocess.CompletedProcess[str]:
        return run_in(tmp_path, *arguments, environment={**environment, **others})

    return run


def environment_in(folder: Path) -> dict[str, str]:
    """Return an environment with a temporary folder without device locks of other tests."""
    return {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}


def run_in(
    folder: Path, *arguments: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def complaints(done: subprocess.CompletedProcess[str]) -> list[str]:
    """Return the text of standard error without the progress lines that a slow machine adds."""
    lines = done.stderr.splitlines()
    return [line for line in lines if not PROGRESS.fullmatch(line)]
