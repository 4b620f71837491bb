"""Tests that a run is shared through git and a DVC remote, varied, and not paid twice.

Stand-in commands replace the stages where only DVC's part is tested. The real first stages run,
tiny, where the ledger's part is tested.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from cudal1.ledger import Ledger
from cudal1.services.consent import VARIABLE
from tests.llm.conftest import Stub
from tests.project import (
    Project,
    copy_of_the_tree,
    git_commit,
    keep_runs_in_git,
    make_project,
    make_up_to_date,
    stages_run,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PAID = {
    "kind": "openai",
    "model": "m",
    "base_url": "",
    "api_key_env": None,
    "temperature": None,
    "top_p": None,
    "max_tokens": 1000,
    "max_completion_tokens": None,
    "reasoning_effort": None,
    "usd_per_million_prompt_tokens": 1.0,
    "usd_per_million_cached_prompt_tokens": None,
    "usd_per_million_completion_tokens": 10.0,
    "requests_per_minute": None,
    "tokens_per_minute": None,
    "budget_usd": 3.0,
    "concurrency": 4,
    "timeout_s": 60.0,
    "max_retries": 0,
}
"""Settings of a provider that charges; the address where it listens is filled in."""


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    yield server
    server.stop()


def ran(project: Project, *command: str, **variables: str) -> str:
    done = project.run(*command, **variables)
    assert done.returncode == 0, done.stdout
    return done.stdout


def clone_of(project: Project, folder: Path, *targets: str) -> Project:
    """Push a run, and return a clone that has all of it, or targets and what they need."""
    remote = folder / "remote"
    ran(project, "dvc", "remote", "add", "--default", "shared", str(remote))
    git_commit(project.folder)
    ran(project, "dvc", "push")
    subprocess.run(
        ["git", "clone", "--quiet", str(project.folder), str(folder / "clone")], check=True
    )
    clone = Project(folder / "clone")
    ran(clone, "dvc", "pull", *(["--with-deps", *targets] if targets else []))
    return clone


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Run the whole pipeline with its own parameters, by stand-ins, and commit it."""
    project = copy_of_the_tree(tmp_path_factory.mktemp("finished"))
    keep_runs_in_git(project)
    make_up_to_date(project)
    git_commit(project.folder)
    return project


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Run a tiny pipeline as far as `filter`, by the real stages, and commit it."""
    project = make_project(tmp_path_factory.mktemp("judged"))
    keep_runs_in_git(project)
    ran(project, "dvc", "repro", "filter")
    git_commit(project.folder)
    return project


def test_an_experiment_reruns_the_dependents_of_its_value(finished: Project) -> None:
    said = ran(finished, "dvc", "exp", "run", "-S", "rl.tau=0.7")
    assert stages_run(said) == ["rl", "search@evolve-rl", "transfer@cpu", "report"]
    assert "rl.tau" in ran(finished, "dvc", "params", "diff")
    metrics = json.loads(ran(finished, "dvc", "metrics", "diff", "--json"))
    assert list(metrics) == ["data/metrics/report.json"]
    of_rl = ran(finished, "dvc", "metrics", "diff", "--targets", "data/metrics/rl.json")
    assert "success" in of_rl
    shown = ran(finished, "dvc", "plots", "diff", "--json")
    assert {"reward", "success", "loss"} <= set(json.loads(shown)["data"])
    subprocess.run(["git", "checkout", "--quiet", "."], cwd=finished.folder, check=True)
    ran(finished, "dvc", "checkout")


def test_a_clone_has_nothing_to_do(finished: Project, tmp_path: Path) -> None:
    clone = clone_of(finished, tmp_path)
    assert stages_run(ran(clone, "dvc", "repro")) == []


def test_a_clone_of_a_real_run_knows_the_judged_candidates(judged: Project, tmp_path: Path) -> None:
    clone = clone_of(judged, tmp_path, "filter")
    assert stages_run(ran(clone, "dvc", "repro", "filter")) == []
    with Ledger.read(judged.data) as there, Ledger.read(clone.data) as here:
        asked = "select candidate_id, judged_at from verdicts order by all"
        assert here.sql(asked).rows() == there.sql(asked).rows() != []
    said = ran(clone, "cudal1.cli", "sql", "from outcomes limit 3", "--json")
    assert len(json.loads(said.splitlines()[-1])) == 3
    ran(clone, "dvc", "repro", "--force", "--single-item", "generate@fuser")
    assert clone.metrics("generate-fuser")["num_checked"] == 0


def test_a_changed_prompt_costs_nothing_until_a_run_may_spend(judged: Project, stub: Stub) -> None:
    """Changing the prompt back costs nothing at all: paid answers are given again."""
    paid = PAID | {"base_url": stub.base_url}
    judged.edit_params(lambda params: params["generate"]["providers"].update(paid=paid))
    stopped = judged.run("dvc", "repro", "generate@paid")
    assert stopped.returncode != 0
    assert "generate@paid: provider paid charges, and this run may spend nothing" in stopped.stdout
    assert stub.bodies == []
    ran(judged, "dvc", "repro", "generate@paid", **{VARIABLE: "5"})
    num_paid = len(stub.bodies)
    assert num_paid == judged.metrics("generate-paid")["num_asked"] > 0

    prompt = judged.folder / "cudal1" / "prompts" / "paper" / "generate.md"
    before = prompt.read_text()
    prompt.write_text(f"{before}\nBe brief.\n")
    stopped = judged.run("dvc", "repro", "generate@paid")
    assert stopped.returncode != 0
    assert f"put {VARIABLE}=" in stopped.stdout
    assert "paid" in ran(judged, "tasks.generate", "--dry-run", "--item", "paid")
    prompt.write_text(before)
    ran(judged, "dvc", "repro", "generate@paid")
    assert (judged.data / "generate" / "paid.parquet").exists()
    assert len(stub.bodies) == num_paid
