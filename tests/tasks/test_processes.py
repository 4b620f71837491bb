"""Tests that RL over two processes is one stage: one ledger, one run in MLflow, one policy."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from cudal1.ledger import Ledger
from tests.project import Project, make_project


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Run stage 3 over two processes, from the base policy."""
    project = make_project(tmp_path_factory.mktemp("project"))

    def spread(params: dict[str, Any]) -> None:
        params["scale"].update(processes=2, micro_batch=1)
        params["rl"].update(init="base", steps=2, prompts_per_step=2)

    project.edit_params(spread)
    done = project.run("dvc", "repro", "rl", timeout_s=800)
    assert done.returncode == 0, done.stdout
    return project


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_answer_is_in_the_ledger_with_its_reward(trained: Project) -> None:
    with Ledger.open(trained.data) as ledger:
        rows = ledger.query("steps", stage="rl").to_dicts()
        rewards = [row for row in rows if row["name"] == "reward_raw"]
    assert [row["step"] for row in rewards] == [1, 2]
    shard = trained.data / "shards" / "rl"
    assert _count(shard, "rewards") == 2 * 2 * 4


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_stage_is_one_run_in_mlflow(trained: Project) -> None:
    with sqlite3.connect(trained.data / "mlflow.db") as store:
        runs = store.execute("select name, status from runs order by name").fetchall()
    of_stages = [(name.partition(":")[0], status) for name, status in runs if ": " in name]
    assert of_stages == [("rl", "FINISHED")]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_policy_is_a_plain_folder(trained: Project) -> None:
    found = {path.name for path in (trained.data / "policy" / "rl").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= found


def _count(shard: Path, table: str) -> int:
    import polars as pl

    return pl.read_parquet(shard / f"{table}.parquet").height
