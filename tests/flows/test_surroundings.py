"""Tests that a flow works in any checkout and environment, and leaves git's files unchanged."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile import VARIABLES, make_hostile
from tests.project import Project, git_commit, make_project, stages_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FLOW = ("flows.pipeline", "--until", "problems")


def git_status(project: Project) -> str:
    return subprocess.run(
        ["git", "status", "--porcelain"],
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """Make a clone, its `data` a link to another disk, and run a flow as a user with variables."""
    project = make_project(tmp_path_factory.mktemp("project"))
    with (project.folder / ".git" / "info" / "exclude").open("a") as excluded:
        excluded.write("/.tmp/\n")  # variables of the tests
    git_commit(project.folder)
    disk = tmp_path_factory.mktemp("disk")
    project.data.symlink_to(disk)
    done = project.run(*FLOW, **VARIABLES)
    assert done.returncode == 0, done.stdout
    return project, done.stdout


@pytest.fixture
def project(first: tuple[Project, str]) -> Project:
    return first[0]


def says_nothing_is_to_do(project: Project, **variables: str) -> None:
    done = project.run(*FLOW, **variables)
    assert done.returncode == 0, done.stdout
    assert stages_run(done.stdout) == []


def test_variables_and_proxies_of_a_user_change_nothing(first: tuple[Project, str]) -> None:
    project, said = first
    assert stages_run(said) == ["problems"]
    assert "Traceback" not in said
    assert (project.folder / ".prefect" / "prefect.db").exists()


def test_git_sees_no_change_after_a_run(project: Project) -> None:
    assert git_status(project) == ""


def test_data_may_be_a_link(project: Project) -> None:
    assert project.data.is_symlink()
    assert (project.data.readlink() / "metrics" / "problems.json").exists()
    says_nothing_is_to_do(project)


@contextmanager
def hostile(project: Project, note: Path) -> Iterator[None]:
    before = {path.name for path in project.folder.iterdir()}
    kept = (project.folder / "pyproject.toml").read_bytes()
    make_hostile(project.folder, note)
    try:
        yield
    finally:
        (project.folder / "pyproject.toml").write_bytes(kept)
        for path in project.folder.iterdir():
            if path.name not in before:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_flow_takes_no_module_and_no_setting_from_its_working_directory(
    project: Project, tmp_path: Path
) -> None:
    with hostile(project, tmp_path / "note"):
        says_nothing_is_to_do(project, **VARIABLES)
        done = project.run("tasks.generate", "--dry-run", **VARIABLES)
        assert done.returncode == 0, done.stdout
    assert not (tmp_path / "note").exists()


def test_a_flow_refuses_another_folder_in_one_line(project: Project, tmp_path: Path) -> None:
    (tmp_path / "params.yaml").write_text("protocol: {alpha: 0.5}\n")
    start = str(project.folder / "cudal1" / "start.py")
    for program in (FLOW, ("tasks.problems",), ("flows.serve",), ("tasks.server.mlflow_ui",)):
        done = subprocess.run(
            ["python", "-I", "-X", "utf8", start, *program],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
            env=project.environment(),
        )
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert str(project.folder) in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["params.yaml"]


def test_a_checkout_is_reached_through_a_link(project: Project, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(project.folder)
    says_nothing_is_to_do(Project(tmp_path / "link"))


def test_a_copy_without_git_has_nothing_to_do_and_writes_only_inside_its_folder(
    project: Project, tmp_path: Path
) -> None:
    copy = Project(tmp_path / "a copy")
    shutil.copytree(project.folder, copy.folder, ignore=shutil.ignore_patterns(".git"))
    before = {path: path.stat().st_mtime_ns for path in project.folder.rglob("*")}
    says_nothing_is_to_do(copy)
    done = copy.run("dvc", "repro", "--force", "problems")
    assert done.returncode == 0, done.stdout
    after = {path: path.stat().st_mtime_ns for path in project.folder.rglob("*")}
    assert after == before


def test_a_link_to_nothing_is_refused_before_anything_runs(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    project.data.symlink_to("nothing")
    done = project.run("tasks.problems")
    assert done.returncode == 2
    assert done.stdout.splitlines()[-1].startswith("problems: data: a link to nothing")
    assert "Traceback" not in done.stdout


def test_a_link_is_refused_before_anything_runs_where_runs_are_in_git(
    project: Project, tmp_path: Path
) -> None:
    copy = Project(tmp_path / "copy")
    shutil.copytree(project.folder, copy.folder, symlinks=True)
    ignored = copy.folder / ".gitignore"
    ignored.write_text(ignored.read_text().replace("\ndvc.lock\n", "\n"))
    assert copy.run("dvc", "config", "core.no_scm", "false").returncode == 0
    os.utime(copy.folder / "tasks" / "problems.py")
    for command in (FLOW, ("tasks.problems",)):
        done = copy.run(*command)
        assert done.returncode in (1, 2)
        assert "behind a link that leads out of" in done.stdout
        assert "Traceback" not in done.stdout
