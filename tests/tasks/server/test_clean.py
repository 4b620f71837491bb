"""Tests that `make clean` deletes a run and keeps paid answers, decisions and committed files."""

from __future__ import annotations

import fcntl
import subprocess
from pathlib import Path

import pytest

from cudal1.ledger import Ledger
from tests.ledger.conftest import Facts
from tests.project import Project, copy_of_the_tree, git_commit

pytestmark = pytest.mark.slow

FACTS = Facts()


def add_answers(data: Path, stage: str, *, paid: bool, finish: bool = True) -> None:
    """Run a stage that was given one answer, for money or for nothing."""
    with Ledger.open(data) as ledger:
        ledger.begin(stage, run=stage)
        completion = FACTS.completion(f"{stage} asked", stage=stage)
        attempt = FACTS.tries()[0].model_copy(update={"request_id": completion.id, "stage": stage})
        ledger.add_answer(completion, attempt if paid else None)
        if finish:
            ledger.export()


def add_ruling(data: Path) -> None:
    with Ledger.open(data) as ledger:
        ledger.begin_rulings()
        ledger.add_candidate(FACTS.candidate())
        ledger.add_ruling(FACTS.ruling(FACTS.candidate()))
        ledger.export()


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Make a clone of which git knows everything."""
    project = copy_of_the_tree(tmp_path)
    git_commit(project.folder)
    return project


def clean(project: Project) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "--no-print-directory", "clean"],
        cwd=project.folder,
        env=project.environment(),
        text=True,
        capture_output=True,
        check=False,
    )


def known(data: Path) -> set[str]:
    """Return the ids of the answers that a ledger finds in its files."""
    with Ledger.open(data) as ledger:
        return set(ledger.sql("select completion_id from completions")["completion_id"])


def status(project: Project) -> str:
    return subprocess.run(
        ["git", "status", "--porcelain"],
        cwd=project.folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_free_answers_of_a_run_are_deleted(project: Project) -> None:
    add_answers(project.data, "generate@free", paid=False)
    add_answers(project.data, "filter", paid=False, finish=False)
    for name in ("data/policy/base/weights", "data/metrics/rl.json", "dvc.lock", ".prefect/db"):
        (project.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (project.folder / name).touch()
    assert clean(project).returncode == 0
    assert list(project.data.iterdir()) == []
    assert not (project.folder / "dvc.lock").exists()
    assert not (project.folder / ".prefect").exists()


def test_a_paid_answer_is_found_after_cleaning(project: Project) -> None:
    add_answers(project.data, "generate@free", paid=False)
    add_answers(project.data, "generate@paid", paid=True)
    done = clean(project)
    assert done.stdout == "kept: data/shards/generate@paid, with what was paid for or decided\n"
    assert [path.name for path in project.data.iterdir()] == ["shards"]
    assert known(project.data) == {"generate@paid asked"}


def test_paid_answers_of_a_killed_run_are_found_after_cleaning(project: Project) -> None:
    add_answers(project.data, "generate@paid", paid=True, finish=False)
    assert clean(project).returncode == 0
    assert known(project.data) == {"generate@paid asked"}


def test_paid_answers_that_no_stage_uses_are_found_after_cleaning(project: Project) -> None:
    add_answers(project.data, "generate@paid", paid=True)
    with Ledger.open(project.data) as ledger:
        ledger.begin("generate@paid", run="another")
        ledger.export()
    assert clean(project).returncode == 0
    assert known(project.data) == {"generate@paid asked"}


def test_decisions_of_people_stay(project: Project) -> None:
    add_ruling(project.data)
    shard = project.data / "shards" / "hacks"
    before = {path.name: path.read_bytes() for path in shard.iterdir()}
    assert clean(project).returncode == 0
    assert {path.name: path.read_bytes() for path in shard.iterdir()} == before


def test_tracked_files_are_not_deleted(project: Project) -> None:
    add_answers(project.data, "generate@free", paid=False)
    subprocess.run(["git", "add", "--force", "data/shards"], cwd=project.folder, check=True)
    (project.folder / "dvc.lock").touch()
    subprocess.run(["git", "add", "--force", "dvc.lock"], cwd=project.folder, check=True)
    git_commit(project.folder)
    assert clean(project).returncode == 0
    assert status(project) == ""


def test_paid_answers_in_the_cache_of_dvc_can_be_checked_out_after_cleaning(
    project: Project,
) -> None:
    add_answers(project.data, "generate@paid", paid=True)
    add_answers(project.data, "generate@free", paid=False)
    for name in ("paid", "free"):
        done = project.run("dvc", "add", "--quiet", f"data/shards/generate@{name}")
        assert done.returncode == 0, done.stdout
    pointers = {path: path.read_bytes() for path in (project.data / "shards").glob("*.dvc")}
    assert len(pointers) == 2
    assert clean(project).returncode == 0
    for path, content in pointers.items():
        path.write_bytes(content)
    paid, free = "data/shards/generate@paid", "data/shards/generate@free"
    subprocess.run(["rm", "-r", paid], cwd=project.folder, check=True)
    assert project.run("dvc", "checkout", f"{paid}.dvc").returncode == 0
    assert (project.folder / paid / "tries.parquet").exists()
    assert project.run("dvc", "checkout", f"{free}.dvc").returncode != 0


def test_data_that_is_a_link_to_another_disk_is_emptied_and_stays(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = tmp_path_factory.mktemp("disk")
    project.data.symlink_to(disk)
    add_answers(project.data, "generate@free", paid=False)
    add_answers(project.data, "generate@paid", paid=True)
    assert clean(project).returncode == 0
    assert project.data.is_symlink()
    assert known(disk) == {"generate@paid asked"}


def test_a_link_inside_data_is_deleted_and_its_target_stays(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    weights = tmp_path_factory.mktemp("policies") / "weights"
    weights.touch()
    project.data.mkdir()
    (project.data / "policy").symlink_to(weights.parent)
    assert clean(project).returncode == 0
    assert list(project.data.iterdir()) == []
    assert weights.exists()


def test_a_running_stage_is_not_cleaned_away(project: Project) -> None:
    with Ledger.open(project.data) as ledger:
        ledger.begin("filter", run="one")
        done = clean(project)
    assert done.returncode == 2
    assert "data/.ledger.duckdb: a run is using it; stop the run, then clean\n" in done.stderr
    assert (project.data / "ledger.duckdb").exists()


def test_a_running_flow_is_not_cleaned_away(project: Project) -> None:
    project.data.mkdir()
    with (project.data / ".flow").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = clean(project)
    assert "data/.flow: a run is using it; stop the run, then clean\n" in done.stderr
    assert (project.data / ".flow").exists()


def test_a_clone_in_which_nothing_has_run_is_left_unchanged(project: Project) -> None:
    done = clean(project)
    assert (done.returncode, done.stdout) == (0, "")
    assert status(project) == ""
