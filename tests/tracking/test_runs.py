"""Tests that MLflow has one curve per run, across kills, and the final policy as a version."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys

import pytest

from cudal1.errors import StoreError
from cudal1.tracking import registry
from cudal1.tracking import runs as tracking
from cudal1.tracking.store import EXPERIMENT, settle


def runs_of(store, key):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    (experiment,) = (e for e in client.search_experiments() if e.name == EXPERIMENT)
    return client, client.search_runs([experiment.experiment_id], f"tags.key = '{key}'")


@pytest.mark.slow
def test_a_run_has_its_params_and_its_curve(store):
    with tracking.Run(store, "sft", key="plain", params={"steps": 3, "long": "x" * 9999}) as run:
        for step in range(3):
            run.log(step, {"loss": 3.0 - step, "reward": 0.5})
    client, (found,) = runs_of(store, "plain")
    assert found.data.params["steps"] == "3"
    curve = client.get_metric_history(found.info.run_id, "loss")
    assert [(point.step, point.value) for point in curve] == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert (found.info.status, found.info.run_name) == ("FINISHED", "sft")


def test_a_failed_run_is_marked_and_its_failure_is_raised(store):
    with pytest.raises(ZeroDivisionError), tracking.Run(store, "sft", key="fails", params={}):
        raise ZeroDivisionError
    _, (found,) = runs_of(store, "fails")
    assert found.info.status == "FAILED"


@pytest.mark.slow
def test_a_killed_run_continues_as_one_curve(store):
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from cudal1.tracking import runs as tracking\n"
        "with tracking.Run(Path(sys.argv[1]), 'rl', key='killed', params={'a': 1}) as run:\n"
        "    run.log(1, {'reward': 0.25})\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(store)], check=False)
    assert done.returncode == -signal.SIGKILL
    with tracking.Run(store, "rl", key="killed", params={"a": 1}) as run:
        assert run.last_step == 1
        run.log(2, {"reward": 0.5})
        assert run.last_step == 2
    client, (found,) = runs_of(store, "killed")
    curve = client.get_metric_history(found.info.run_id, "reward")
    assert [(point.step, point.value) for point in curve] == [(1, 0.25), (2, 0.5)]


@pytest.mark.slow
def test_marks_are_logged_once_at_the_last_step_and_are_no_step(store):
    for _ in range(2):
        try:
            with tracking.Run(store, "rl", key="marked", params={}) as run:
                assert run.last_step in (-1, 4)
                if run.last_step < 4:
                    run.log(4, {"loss": 1.0})
                run.mark({"success": 0.5, "mean_reward": 0.75})
                assert run.last_step == 4
                raise KeyError
        except KeyError:
            pass
    client, (found,) = runs_of(store, "marked")
    curve = client.get_metric_history(found.info.run_id, "heldout/success")
    assert [(point.step, point.value) for point in curve] == [(4, 0.5)]


def test_runs_of_stages_are_inside_the_run_of_the_whole(store):
    for stage in ("sft", "rl"):
        with tracking.Run(store, stage, key=f"in-{stage}", params={}, whole="toy pipeline"):
            pass
    marks = [{"heldout/success": 0.25}, {"heldout/success": 0.5}]
    tracking.close(
        store,
        "toy pipeline",
        text="It gained.",
        numbers={"report/num_problems": 3},
        by_stage=marks,
        tags={"device": "cpu"},
    )
    client, (first,) = runs_of(store, "in-sft")
    _, (second,) = runs_of(store, "in-rl")
    inside = {run.data.tags["mlflow.parentRunId"] for run in (first, second)}
    (whole,) = (client.get_run(run_id) for run_id in inside)
    assert whole.info.run_name is not None
    assert whole.info.status == "FINISHED"
    assert whole.info.run_name.startswith("toy pipeline of ")
    assert whole.data.tags["mlflow.note.content"] == "It gained."
    curve = client.get_metric_history(whole.info.run_id, "heldout/success")
    assert [(point.step, point.value) for point in curve] == [(0, 0.25), (1, 0.5)]
    with tracking.Run(store, "sft", key="in-next", params={}, whole="toy pipeline"):
        pass
    _, (later,) = runs_of(store, "in-next")
    assert later.data.tags["mlflow.parentRunId"] != whole.info.run_id


def test_a_whole_that_is_one_of_its_name_is_closed_once(store):
    for text in ("first", "second"):
        tracking.close(store, "toy night", text=text, numbers={}, tags={}, is_only=True)
    client, _ = runs_of(store, "none")
    experiment = client.get_experiment_by_name(EXPERIMENT)
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id], "tags.whole = 'toy night'")
    assert found.data.tags["mlflow.note.content"] == "first"


def test_a_finished_run_is_followed_by_a_new_one(store):
    for _ in range(2):
        with tracking.Run(store, "sft", key="twice", params={}):
            pass
    assert len(runs_of(store, "twice")[1]) == 2


def weights(folder, number, out):
    registry.bring(folder, "toy", version=number, out=out)
    return (out / "model.safetensors").read_bytes()


@pytest.mark.parametrize("take", [shutil.copytree, shutil.move])
def test_a_copied_or_moved_store_uses_its_own_folder(two_versions, tmp_path, take):
    first, moved, policy = tmp_path / "first", tmp_path / "moved here", tmp_path / "rl"
    shutil.copytree(two_versions, first)
    settle(first)
    take(first, moved)
    before = sorted(first.rglob("*"))
    assert weights(moved, 1, tmp_path / "out") == b"old"

    policy.mkdir()
    (policy / "model.safetensors").write_bytes(b"newest")
    with tracking.Run(moved, "rl", key="after", params={}) as run:
        run.log_checkpoint(policy)
    assert registry.register(moved, "toy", policy, alias="best") == 3
    assert weights(moved, 3, tmp_path / "out") == b"newest"
    assert sorted(first.rglob("*")) == before
    assert [path for path in paths_in(moved / "mlflow.db") if str(moved.as_uri()) not in path] == []


@pytest.mark.slow
def test_a_copy_survives_the_loss_of_its_original(two_versions, tmp_path):
    for name in ("a", "b", "c"):
        shutil.copytree(two_versions, tmp_path / name)
        settle(tmp_path / name)
        assert weights(tmp_path / name, 2, tmp_path / "out") == b"new"
        shutil.rmtree(tmp_path / name)


def test_a_folder_behind_a_link_is_one_store(two_versions, tmp_path):
    link = tmp_path / "data"
    link.symlink_to(two_versions)
    assert weights(link, 1, tmp_path / "out") == b"old"
    assert weights(two_versions, 1, tmp_path / "out") == b"old"


def paths_in(database):
    """Return every text in a database that looks like a path of this machine."""
    store = sqlite3.connect(database)
    tables = [
        name for (name,) in store.execute("select name from sqlite_master where type='table'")
    ]
    values = [
        value
        for table in tables
        for row in store.execute(f"select * from {table}")
        for value in row
    ]
    store.close()
    return [value for value in values if isinstance(value, str) and "/mlruns" in value]


@pytest.mark.slow
def test_servers_and_runs_of_the_user_are_not_used(tmp_path, monkeypatch):
    for name in ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_RUN_ID", "0" * 32)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "theirs")
    policy = tmp_path / "rl"
    policy.mkdir()
    with tracking.Run(tmp_path / "data", "rl", key="own", params={}) as run:
        run.log_checkpoint(policy)
    assert registry.register(tmp_path / "data", "toy", policy, alias="best") == 1


def test_a_locked_store_gives_one_clear_line(store, monkeypatch):
    from mlflow.store.db import utils

    written, patience = utils.sql.text, "busy_timeout = 20000"
    replaced = []

    def impatient(said):  # MLflow would wait for the lock for twenty seconds
        replaced.append(patience in said)
        return written(said.replace(patience, "busy_timeout = 200"))

    monkeypatch.setattr(utils.sql, "text", impatient)
    with tracking.Run(store, "sft", key="locked", params={}) as run:
        holder = sqlite3.connect(store / "mlflow.db", isolation_level=None)
        try:
            holder.execute("begin exclusive")
            with pytest.raises(StoreError, match="another process holds it") as caught:
                run.log(1, {"loss": 1.0})
        finally:
            holder.close()
    assert "\n" not in str(caught.value)
    assert any(replaced), "MLflow words its patience otherwise"


def test_a_file_that_is_not_a_store_gives_one_clear_line(tmp_path):
    (tmp_path / "mlflow.db").write_bytes(b"junk" * 500)
    with (
        pytest.raises(StoreError, match="move the file away") as caught,
        tracking.Run(tmp_path, "sft", key="k", params={}),
    ):
        pass
    assert "\n" not in str(caught.value)


def test_importing_tracking_does_not_import_mlflow():
    code = "import sys, cudal1.tracking.runs; sys.exit('mlflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_telemetry_is_off(store):
    with tracking.Run(store, "sft", key="quiet", params={}):
        assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
