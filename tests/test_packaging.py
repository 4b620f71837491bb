"""Tests of the files installed with cudal1, and of the message for a missing extra."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from cudal1.processes import inherited, python
from cudal1.settings.extras import EXTRA_OF
from tests import wheel
from tests.cli.conftest import FASTER, PROBLEM
from tests.project import ROOT

OTHER_NAMES = {
    "yaml": "pyyaml",
    "vl_convert": "vl-convert-python",
    "ruamel": "ruamel.yaml",
    "prometheus_client": "prometheus-client",
}
"""Names of distributions that differ from the imported names."""
COMES_WITH = {"pydantic_core": "pydantic", "triton": "torch", "markupsafe": "jinja2"}
"""Imports that one of our requirements brings in any version."""
MAX_DISTRIBUTIONS = 25
"""Number of distributions that `cudal1 judge` may install besides PyTorch and its needs (issue
37)."""
NEEDS = {
    "sql --views": "pipeline",
    "publish shared": "pipeline",
    "hacks list": "pipeline",
    "providers add paper": "pipeline",
    "training use coder-7b": "pipeline",
    "training memory": "train",
    "serve --new-token alice": "serve",
}
"""Commands beyond the core, each with the extra that it needs first."""


def imported() -> list[str]:
    """Return the names that modules of cudal1 import at any place, without Python's own."""
    found: set[str] = set()
    for path in (ROOT / "cudal1").rglob("*.py"):
        if "suite/problems" in path.as_posix():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(node.module or "")
    names = {name.partition(".")[0] for name in found}
    return sorted(names - set(sys.stdlib_module_names) - {"cudal1"})


def named(requirements: list[str]) -> set[str]:
    return {Requirement(line).name for line in requirements}


@pytest.mark.parametrize("name", imported())
def test_an_import_is_a_requirement_of_the_core_or_of_the_named_extra(name: str) -> None:
    extra = EXTRA_OF.get(name)
    core, extras = wheel.PROJECT["dependencies"], wheel.PROJECT["optional-dependencies"]
    name = COMES_WITH.get(name, OTHER_NAMES.get(name, name))
    assert name in named(core if extra is None else extras[extra])


@pytest.mark.slow
def test_extras_name_only_imported_distributions() -> None:
    assert sorted(set(EXTRA_OF) - set(imported())) == []


def test_judging_installs_few_distributions_besides_pytorch_and_its_needs() -> None:
    requirements = wheel.PROJECT["dependencies"]
    torch = [line for line in requirements if Requirement(line).name == "torch"]
    besides = set(wheel.needed(requirements)) - set(wheel.needed(torch))
    assert "pydantic" in besides
    assert len(besides) <= MAX_DISTRIBUTIONS, sorted(besides)


@pytest.mark.parametrize(("command", "extra"), NEEDS.items())
def test_a_command_without_its_extra_names_the_package_to_install(
    command: str, extra: str, tmp_path: Path
) -> None:
    (tmp_path / "params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    words = command.split(" ")
    done = subprocess.run(
        python("tests.without_extras", *words),
        cwd=tmp_path,
        env=inherited(),
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    said = rf"cudal1 [a-z ]+ needs the extra {extra}: pip install 'cudal1\[{extra}\]'\n"
    assert re.fullmatch(said, done.stderr)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheel.build(tmp_path_factory.mktemp("wheel"))


@pytest.mark.slow
def test_a_wheel_installs_our_package_alone_and_no_weights(built: Path) -> None:
    with zipfile.ZipFile(built) as content:
        names = content.namelist()
    tops = {name.partition("/")[0] for name in names}
    version = wheel.PROJECT["version"]
    assert tops == {"cudal1", f"cudal1-{version}.dist-info", f"cudal1-{version}.data"}
    assert [name for name in names if name.startswith("cudal1/train/embedded")] == []
    assert "cudal1/py.typed" in names
    assert f"cudal1-{version}.dist-info/licenses/LICENSE" in names


@pytest.mark.slow
def test_a_wheel_alone_judges_and_reports_in_any_folder(built: Path, tmp_path: Path) -> None:
    program = wheel.install(built, tmp_path / "venv") / "cudal1"
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "model.py").write_text(PROBLEM)
    (folder / "faster.py").write_text(FASTER)
    softmax = (
        "class ModelNew(nn.Module):\n    def forward(self, x):\n        return x.softmax(-1)\n"
    )
    row = {"level": 1, "problem_id": 3, "source": f"from torch import nn\n\n\n{softmax}"}
    (folder / "many.jsonl").write_text(json.dumps(row) + "\n")

    def said(*words: str) -> str:
        done = subprocess.run(
            [program, *words],
            cwd=folder,
            env=inherited(),
            text=True,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert said("screen", "faster.py") == "notes  none\n"
    judging = ("--checks-only", "--wait", "600")
    assert said("judge", "model.py", "faster.py", *judging).startswith("verdict    CORRECT")
    said("judge", "--candidates", "many.jsonl", "--suite", "shipped", *judging)
    assert said("report", "many.verdicts.jsonl").startswith("## cudal1 ")
