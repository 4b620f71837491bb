"""Run a night's training stages in a tiny project, with a kill in the middle of reinforcement."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from cudal1.ledger import Ledger
from tests.flows.nights import make_night_project
from tests.journals import whole_lines
from tests.project import Project

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
NIGHT = {
    "number": 1,
    "champion": 1,
    "champion_made_at": "2000-01-01T00:00:00+00:00",
    "challenge": 1,
    "opened_at": "2026-11-30T00:00:00+00:00",
}
STEPS = 3


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Make a challenger; `kill -9` ends its stage after the first step's checkpoint."""
    project = make_night_project(tmp_path_factory.mktemp("project"))

    def always_contrast(params: dict[str, Any]) -> None:
        params["rl"]["plain_share"] = 0.0
        params["challenger"]["steps"] = STEPS

    project.edit_params(always_contrast)
    (project.data / "nightly").mkdir()
    (project.data / "nightly" / "night.json").write_text(json.dumps(NIGHT))
    done = project.run("dvc", "repro", "flows/night/dvc.yaml:tuned")
    assert done.returncode == 0, done.stdout
    work = project.data / "work" / "challenger"

    def has_one_step() -> bool:
        return any(work.glob("*/checkpoint-1/cudal1.json")) and bool(
            whole_lines(project.data, "challenger")
        )

    command = ("dvc", "repro", "--single-item", "flows/night/dvc.yaml:challenger")
    project.kill_when(has_one_step, *command)
    done = project.run(*command)
    assert done.returncode == 0, done.stdout
    return project


def test_each_step_is_in_the_ledger_once_under_the_stages_name(trained: Project) -> None:
    with Ledger.read(trained.data) as ledger:
        steps = ledger.query("steps", stage="challenger").to_dicts()
        answers = ledger.sql("select stage, count(*) as n from rewards group by stage").rows()
    assert [row["step"] for row in steps if row["name"] == "reward_raw"] == [1, 2, 3]
    assert answers == [("challenger", STEPS * 4)]


def test_prompts_show_what_the_ledger_held_before(trained: Project) -> None:
    history = pl.read_parquet(trained.data / "nightly" / "history.parquet")
    with Ledger.read(trained.data) as ledger:
        shown = ledger.sql(
            "select distinct unnest(exemplar_ids) as id, attempt from completions "
            "where stage = 'challenger'"
        )
    assert shown.height
    first = shown.filter(pl.col("attempt") < 10_000)["id"].to_list()
    assert set(first) <= set(history["candidate_id"])


def test_fine_tuning_and_reinforcement_are_runs_of_their_own_in_mlflow(trained: Project) -> None:
    with sqlite3.connect(trained.data / "mlflow.db") as store:
        runs = store.execute("select name, status from runs order by name").fetchall()
        points = store.execute(
            "select step from metrics join runs using (run_uuid) "
            "where name like 'challenger: %' and key like '%/reward_raw' order by step"
        ).fetchall()
    of_stages = [run for run in runs if ": " in run[0]]
    assert of_stages == [
        ("challenger: 3 steps from tuned", "FINISHED"),
        ("tuned: 2 steps from champion", "FINISHED"),
    ]
    assert points == [(1,), (2,), (3,)]


def test_the_plot_has_a_row_a_step(trained: Project) -> None:
    with (trained.data / "plots" / "challenger.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["step"] for row in rows] == ["1", "2", "3"]
    assert all(float(row["reward_raw"]) >= 0 for row in rows)


def test_each_stage_that_has_something_to_learn_changes_the_policy(trained: Project) -> None:
    """A group of equal rewards has no gradient, and the three steps may have no other."""
    from cudal1.train.policy import fingerprint

    champion, tuned, challenger = (
        fingerprint(trained.data / "policy" / name) for name in ("champion", "tuned", "challenger")
    )
    kept = trained.metrics("challenger")["kept_step"]
    with (trained.data / "plots" / "challenger.csv").open() as stream:
        steps = [row for row in csv.DictReader(stream) if int(row["step"]) <= kept]
    assert tuned != champion
    assert (challenger != tuned) == any(float(row["grad_norm"]) > 0 for row in steps)
    assert trained.metrics("challenger")["heldout_num_answers"] == 2
    assert trained.metrics("tuned")["num_pairs"] > 0


def test_a_champion_with_old_lessons_alone_is_its_own_challenger(trained: Project) -> None:
    """The last of the module: its lessons are old."""
    from cudal1.train.policy import fingerprint

    lessons = trained.data / "nightly" / "lessons.parquet"
    pl.read_parquet(lessons).with_columns(is_new=pl.lit(value=False)).write_parquet(lessons)
    for stage in ("tuned", "challenger"):
        done = trained.run("dvc", "repro", "--single-item", f"flows/night/dvc.yaml:{stage}")
        assert done.returncode == 0, done.stdout
        assert "nothing to learn" in done.stdout
    policies: list[Path] = [trained.data / "policy" / n for n in ("champion", "challenger")]
    assert len({fingerprint(path) for path in policies}) == 1
    assert trained.metrics("challenger")["num_new"] == 0
