"""Tests of the table of docs/rebuilding.md: each change is made, and DVC is asked what runs.

The tests run in a copy of the repository in which DVC believes that everything is up to date.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx
import pytest
import yaml
from dvc.repo import Repo
from dvc.utils.hydra import apply_overrides

from cudal1.settings.params import Params
from tests.project import Project, copy_of_the_tree, make_up_to_date

ROOT = Path(__file__).parent.parent
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
Named = Callable[[str], set[str]]
"""A function from a cell of the table to the stage instances that the cell names."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    change: str
    example: str
    first: str
    then: str

    @property
    def is_a_parameter(self) -> bool:
        return "=" in self.example


def table() -> list[Row]:
    text = (ROOT / "docs" / "rebuilding.md").read_text()
    lines = re.findall(r"^\| (.+) \|$", text, re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    return [
        Row(change, example.strip("`"), first, then) for change, example, first, then in cells[2:]
    ]


ROWS = table()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Make a project with its own parameters, all of its stages up to date."""
    project = copy_of_the_tree(tmp_path_factory.mktemp("finished"))
    make_up_to_date(project)
    return project


@pytest.fixture
def project(finished: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(finished.folder)  # DVC names stages as seen from here
    return finished


@pytest.fixture
def changed(project: Project, request: pytest.FixtureRequest) -> Iterator[Row]:
    """Make the example of a row of the table true until the test ends; return the row."""
    row: Row = request.param
    path = project.folder / ("params.yaml" if row.is_a_parameter else row.example)
    before = path.read_bytes()
    try:
        if row.is_a_parameter:
            apply_overrides(path, [row.example])
            Params.load(path)  # settings that no run could use are no example
        else:
            path.write_bytes(before + b"\n")
        yield row
    finally:
        path.write_bytes(before)


def instances(cell: str, known: set[str]) -> set[str]:
    """Return the stages that a cell such as "everything but `problems` `generate`" stands for."""
    groups = re.findall(r"`([^`]+)`", cell)
    found = {name for name in known if name in groups or name.split("@")[0] in groups}
    unknown = [group for group in groups if not any(group in (n, n.split("@")[0]) for n in known)]
    assert unknown == []
    if cell.startswith("everything"):
        return known - found
    assert groups or cell in ("nothing", "")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("changed", ROWS, indirect=True, ids=[row.example for row in ROWS])
def test_a_change_reruns_the_stages_of_its_row(project: Project, changed: Row) -> None:
    with Repo(str(project.folder)) as repo:
        graph = repo.index.graph  # from a stage to the stages that it needs
        known = {stage.addressing for stage in graph if stage.path_in_repo == "dvc.yaml"}
        first = {stage.addressing for stage in repo.reproduce(dry=True)}
        follows = {
            later.addressing
            for stage in graph
            if stage.addressing in first
            for later in networkx.ancestors(graph, stage)
        } & known - first
    assert first == instances(changed.first, known)
    assert follows == instances(changed.then, known) - first


@pytest.mark.slow
def test_no_stage_reruns_without_a_change(project: Project) -> None:
    with Repo(str(project.folder)) as repo:
        assert repo.reproduce(dry=True) == []


def test_every_section_of_the_parameters_is_in_the_table() -> None:
    shown = {row.example.lstrip("+").split("=")[0].split(".")[0] for row in ROWS}
    declared = [key for stage in DVC.values() for key in stage.get("do", stage)["params"]]
    assert {key.split(".")[0] for key in declared} - shown == set()


def test_every_kind_of_dependency_on_code_is_in_the_table() -> None:
    """Code that the same stages depend on is of one kind, and has a row."""
    declared = {
        name: [str(dep).partition("${")[0] for dep in stage.get("do", stage)["deps"]]
        for name, stage in DVC.items()
    }

    def users(file: str) -> frozenset[str]:
        return frozenset(
            name for name, deps in declared.items() if any(file.startswith(dep) for dep in deps)
        )

    shown = {users(row.example) for row in ROWS if not row.is_a_parameter}
    own = {f"tasks/{name}.py" for name in DVC}
    code = {
        dep for deps in declared.values() for dep in deps if dep.startswith(("cudal1", "tasks"))
    }
    assert sorted(dep for dep in code - own if users(dep) not in shown) == []
