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
from cudal1.tracking import runs as tracking


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Make one store for all tests: making one takes seconds."""
    return tmp_path_factory.mktemp("store")


def runs_of(store, key):
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    (experiment,) = (e for e in client.search_experiments() if e.name == tracking.EXPERIMENT)
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


def test_a_finished_run_is_followed_by_a_new_one(store):
    for _ in range(2):
        with tracking.Run(store, "sft", key="twice", params={}):
            pass
    assert len(runs_of(store, "twice")[1]) == 2


def test_the_final_policy_becomes_a_version_with_its_files(store, tmp_path):
    from mlflow import MlflowClient

    policy = tmp_path / "rl"
    policy.mkdir()
    (policy / "model.safetensors").write_bytes(b"weights")
    versions = []
    for key in ("first", "second"):
        with tracking.Run(store, "rl", key=key, params={}) as run:
            run.log_checkpoint(policy)
        versions += [tracking.register(store, "toy", policy, alias="newest") for _ in range(2)]
    assert versions == [1, 1, 2, 2]
    client = MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    found = client.get_model_version_by_alias("toy", "newest")
    assert int(found.version) == 2
    (kept,) = store.glob(f"mlruns/{found.run_id}/artifacts/policy/model.safetensors")
    assert kept.read_bytes() == b"weights"


def test_the_policy_saved_last_is_registered_whichever_run_began_last(store, tmp_path):
    from mlflow import MlflowClient

    policy = tmp_path / "challenger"
    policy.mkdir()
    (policy / "weights").touch()
    for key, error in (("older", KeyError), ("newer", None), ("newest", KeyError), ("older", None)):
        try:
            with tracking.Run(store, "challenger", key=key, params={}) as run:
                if error is not None:
                    raise error
                run.log_checkpoint(policy)
        except KeyError:
            pass
    number = tracking.register(store, "again", policy, alias="newest")
    client = MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    found = client.get_run(client.get_model_version("again", str(number)).run_id)
    assert found.data.tags["key"] == "older"


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory):
    """Make a store with two policies in its registry, told apart by their weights."""
    folder, policy = tmp_path_factory.mktemp("registry"), tmp_path_factory.mktemp("p") / "rl"
    policy.mkdir()
    for weights in (b"old", b"new"):
        (policy / "model.safetensors").write_bytes(weights)
        with tracking.Run(folder, "rl", key=weights.decode(), params={}) as run:
            run.log_checkpoint(policy)
        tracking.register(folder, "toy", policy, alias="newest")
    return folder


@pytest.mark.slow
def test_an_alias_is_found_where_a_person_has_put_it(two_versions):
    assert tracking.version_of(two_versions, "toy", alias="champion") is None
    assert tracking.version_of(two_versions, "unheard-of", alias="champion") is None
    for number in (1, 2, 1):
        tracking.point(two_versions, "toy", alias="champion", version=number)
        found = tracking.version_of(two_versions, "toy", alias="champion")
        assert found is not None
        assert found.number == number
        assert found.made_at.endswith("+00:00")


def test_the_policy_of_a_version_replaces_the_existing_one(two_versions, tmp_path):
    out = tmp_path / "policy" / "champion"
    for number, weights in ((1, b"old"), (2, b"new")):
        tracking.bring(two_versions, "toy", version=number, out=out)
        assert (out / "model.safetensors").read_bytes() == weights
        (out / "left-over").touch()
    tracking.bring(two_versions, "toy", version=1, out=out)
    assert [path.name for path in out.iterdir()] == ["model.safetensors"]


def test_notes_on_a_version_can_be_read(two_versions):
    tracking.note(two_versions, "toy", version=2, tags={"night": 3, "gain": "0.1"})
    assert tracking.notes(two_versions, "toy", version=2) == {"night": "3", "gain": "0.1"}
    assert tracking.notes(two_versions, "toy", version=1) == {}


def weights(folder, number, out):
    tracking.bring(folder, "toy", version=number, out=out)
    return (out / "model.safetensors").read_bytes()


@pytest.mark.parametrize("take", [shutil.copytree, shutil.move])
def test_a_copied_or_moved_store_uses_its_own_folder(two_versions, tmp_path, take):
    first, moved, policy = tmp_path / "first", tmp_path / "moved here", tmp_path / "rl"
    shutil.copytree(two_versions, first)
    tracking.settle(first)
    take(first, moved)
    before = sorted(first.rglob("*"))
    assert weights(moved, 1, tmp_path / "out") == b"old"

    policy.mkdir()
    (policy / "model.safetensors").write_bytes(b"newest")
    with tracking.Run(moved, "rl", key="after", params={}) as run:
        run.log_checkpoint(policy)
    assert tracking.register(moved, "toy", policy, alias="newest") == 3
    assert weights(moved, 3, tmp_path / "out") == b"newest"
    assert sorted(first.rglob("*")) == before
    assert [path for path in paths_in(moved / "mlflow.db") if str(moved.as_uri()) not in path] == []


@pytest.mark.slow
def test_a_copy_survives_the_loss_of_its_original(two_versions, tmp_path):
    for name in ("a", "b", "c"):
        shutil.copytree(two_versions, tmp_path / name)
        tracking.settle(tmp_path / name)
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
    assert tracking.register(tmp_path / "data", "toy", policy, alias="newest") == 1


def test_a_version_without_files_gives_one_clear_line(two_versions, tmp_path):
    aside = tmp_path / "aside"
    shutil.move(two_versions / "mlruns", aside)
    try:
        with pytest.raises(StoreError, match="version 1: its files are gone") as caught:
            tracking.bring(two_versions, "toy", version=1, out=tmp_path / "out")
    finally:
        shutil.move(aside, two_versions / "mlruns")
    assert "\n" not in str(caught.value)


def test_registering_an_untrained_policy_gives_one_clear_line(store, tmp_path):
    with pytest.raises(StoreError, match="no run of stage nothing"):
        tracking.register(store, "toy", tmp_path / "nothing", alias="newest")


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
