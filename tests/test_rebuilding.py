"""The table of docs/rebuilding.md, held against DVC: each change is made, and DVC asked what runs.

In a copy of the repository in which DVC believes that everything is up to date.
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

from cudal1.params import Params
from tests.project import Project, copy_of_the_tree, make_up_to_date

ROOT = Path(__file__).parent.parent
DVC = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
Named = Callable[[str], set[str]]
"""The stage instances that a cell of the table names."""


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
    """A project whose stages are all up to date, with its own parameters."""
    project = copy_of_the_tree(tmp_path_factory.mktemp("finished"))
    make_up_to_date(project)
    return project


@pytest.fixture
def project(finished: Project, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.chdir(finished.folder)  # DVC names stages as seen from here
    return finished


@pytest.fixture
def changed(project: Project, request: pytest.FixtureRequest) -> Iterator[Row]:
    """A row of the table, its example made true until the test ends."""
    row: Row = request.param
    path = project.folder / ("params.yaml" if row.is_a_parameter else row.example)
    before = path.read_bytes()
    try:
        if row.is_a_parameter:
            apply_overrides(path, [row.example])
            Params.load(path)  # what nobody could run with is no example
        else:
            path.write_bytes(before + b"\n")
        yield row
    finally:
        path.write_bytes(before)


def instances(cell: str, known: set[str]) -> set[str]:
    """What a cell such as "everything but `problems` `generate`" stands for."""
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
def test_a_change_reruns_what_the_table_says(project: Project, changed: Row) -> None:
    with Repo(str(project.folder)) as repo:
        graph = repo.index.graph  # from a stage to what it needs
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


def test_nothing_reruns_where_nothing_has_changed(project: Project) -> None:
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
