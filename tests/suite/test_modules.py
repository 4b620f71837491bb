"""Tests that `package.module:Class` becomes a problem, without an import in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from cudal1.errors import SuiteError
from cudal1.files.source_files import split
from cudal1.harness.reference.reference import load_reference
from cudal1.problem import DeviceClass, Problem
from cudal1.suite.modules import is_module, load_module, remedy_for

PACKAGE = {
    "own_layers/__init__.py": "raise SystemExit('imported')\n",
    "own_layers/norms.py": """import torch
from own_helpers import twice


class Norm(torch.nn.Module):
    def __init__(self, width, *, eps=1e-5):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x, shift=None):
        y = twice(x / (x.norm() + self.eps) * self.weight)
        return y if shift is None else y + shift
""",
    "own_helpers.py": "def twice(x):\n    return x * 2\n",
    "unrelated.py": "raise SystemExit('imported')\n",
}
INPUTS = """import torch

WIDTH = 8


def get_inputs():
    return [torch.randn(4, WIDTH)]


def get_init_inputs():
    return [WIDTH]
"""
BY_NAME = """import torch


def get_inputs():
    return {"x": torch.randn(4, 8), "shift": torch.randn(8)}


def get_init_inputs():
    return dict(width=8, eps=0.5)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path, text in PACKAGE.items():
        file = tmp_path / "src" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "src"


@pytest.fixture
def load(folder: Path, tmp_path: Path) -> Callable[..., Problem]:
    def load(typed: str, inputs: str = INPUTS, *, is_installed: bool = False) -> Problem:
        file = tmp_path / "inputs.py"
        file.write_text(inputs)
        where = None if is_installed else folder
        return load_module(Path(typed), inputs=file, folder=where, device_class=DeviceClass.CPU)

    return load


def test_a_class_of_a_folder_comes_with_the_modules_that_it_needs(
    load: Callable[..., Problem],
) -> None:
    problem = load("own_layers.norms:Norm")
    assert split(problem.source).keys() == {
        "",
        "own_layers/__init__.py",
        "own_layers/norms.py",
        "own_helpers.py",
    }
    assert "own_layers" not in sys.modules


def test_a_class_is_constructed_and_called_as_the_file_says(
    load: Callable[..., Problem], folder: Path
) -> None:
    (folder / "own_layers" / "__init__.py").write_text("")
    found = load_reference(load("own_layers.norms:Norm"))
    assert found.init_inputs == [8]
    assert found.make()(*found.draw()).shape == (4, 8)


def test_arguments_by_name_become_inputs_in_order(
    load: Callable[..., Problem], folder: Path
) -> None:
    (folder / "own_layers" / "__init__.py").write_text("")
    found = load_reference(load("own_layers.norms:Norm", BY_NAME))
    model = found.make()
    x, shift = found.draw()
    assert torch.allclose(model(x, shift) - shift, x / (x.norm() + 0.5) * 2)
    assert found.init_inputs == []


def test_an_installed_class_is_imported_and_its_version_is_part_of_the_problem(
    load: Callable[..., Problem],
) -> None:
    inputs = INPUTS.replace("[WIDTH]", "[WIDTH, 3]")
    problem = load("torch.nn.modules.linear:Linear", inputs, is_installed=True)
    assert f"# torch.nn.modules.linear:Linear (torch {torch.__version__})" in problem.source
    found = load_reference(problem)
    assert found.make()(*found.draw()).shape == (4, 3)


@pytest.mark.parametrize(
    ("typed", "is_installed", "said"),
    [
        ("own_layers.norms:Nrm", False, "has no class Nrm; did you mean own_layers.norms:Norm?"),
        ("own_layers.norm:Norm", False, "holds no own_layers/norm.py; give --path"),
        ("own_absent.norms:Norm", True, "no installed module own_absent; install it, or give --pa"),
        ("torch.nn.modules.liner:Linear", True, "torch has no module torch.nn.modules.liner"),
        ("torch.nn.modules.linear:Linea", True, "did you mean torch.nn.modules.linear:Linear?"),
    ],
)
def test_a_wrong_name_is_refused_with_the_remedy(
    load: Callable[..., Problem], typed: str, is_installed: bool, said: str
) -> None:
    with pytest.raises(SuiteError) as raised:
        load(typed, is_installed=is_installed)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("inputs", "said"),
    [
        ("import torch\n", "has no get_inputs; define get_inputs"),
        ("def get_inputs(:\n", "is no Python"),
        ("def get_inputs():\n    return {1: 2}\n", "some key is no name"),
    ],
)
def test_a_file_without_inputs_is_refused_with_the_remedy(
    load: Callable[..., Problem], inputs: str, said: str
) -> None:
    with pytest.raises(SuiteError, match=said):
        load("own_layers.norms:Norm", inputs)


def test_data_that_would_be_unpickled_is_refused_unread(folder: Path) -> None:
    with pytest.raises(SuiteError, match="may run code where it is read; give a Python file"):
        load_module(
            Path("own_layers.norms:Norm"),
            inputs=Path("absent.pt"),
            folder=folder,
            device_class=DeviceClass.CPU,
        )


def test_missing_inputs_are_asked_for(folder: Path) -> None:
    with pytest.raises(SuiteError, match="has no example inputs; give --inputs FILE"):
        load_module(
            Path("own_layers.norms:Norm"), inputs=None, folder=folder, device_class=DeviceClass.CPU
        )


def test_a_file_of_that_name_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_module(Path("a.b:C"))
    Path("a.b:C").touch()
    assert not is_module(Path("a.b:C"))
    assert not is_module(Path("folder/a.b:C"))
    assert not is_module(Path("model.py"))


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("TypeError: N.__init__() missing 1 required positional argument: 'w'", "get_init_inputs"),
        ("TypeError: N.forward() missing 1 required positional argument: 'y'", "get_inputs"),
        ("RuntimeError: Found no NVIDIA driver on your system", "--device cuda"),
    ],
)
def test_a_reason_that_has_a_remedy_names_it(reason: str, said: str) -> None:
    assert said in remedy_for(reason)
    assert remedy_for("its output is constant") == ""
