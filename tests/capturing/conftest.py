"""Fixtures: a captured folder's problems, run as a problem's own process runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from cudal1.capturing.capture import capture
from cudal1.harness.reference.reference import Reference, load_reference
from cudal1.problem import DeviceClass
from cudal1.suite.loader import load_file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "captured"


@pytest.fixture(autouse=True)
def own_randomness() -> None:
    """Begin each test with the same random numbers."""
    torch.manual_seed(0)


def reference(file: Path) -> Reference:
    return load_reference(load_file(file, device_class=DeviceClass.CPU))


@contextmanager
def captured_one(target: Any, folder: Path, **options: Any) -> Iterator[list[Path]]:
    """Capture within a block; yield a list that has the files afterwards."""
    files: list[Path] = []
    with capture(target, folder, **options) as capturing:
        yield files
    files += capturing.files


def computes_the_same(file: Path, module: torch.nn.Module, call: Callable[..., Any]) -> bool:
    """Return whether a file's model equals `call`, a call of the module, on drawn inputs."""
    found = reference(file)
    model = found.make()
    model.load_state_dict(module.state_dict())
    inputs = found.draw()
    with torch.no_grad():
        mine, theirs = model(*inputs), call(*inputs)
    pairs = zip(_listed(mine), _listed(theirs), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def _listed(value: Any) -> list[torch.Tensor]:
    return list(value) if isinstance(value, list | tuple) else [value]
