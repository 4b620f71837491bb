"""Tests of the registry: versions and their files, descriptions, aliases, the best policy."""

from __future__ import annotations

import shutil

import pytest

from cudal1.errors import StoreError
from cudal1.tracking import registry
from cudal1.tracking import runs as tracking


def test_the_final_policy_becomes_a_version_with_its_files(store, tmp_path):
    from mlflow import MlflowClient

    policy = tmp_path / "rl"
    policy.mkdir()
    (policy / "model.safetensors").write_bytes(b"weights")
    versions = []
    for key in ("first", "second"):
        with tracking.Run(store, "rl", key=key, params={}) as run:
            run.log_checkpoint(policy)
        versions += [registry.register(store, "toy", policy, alias="best") for _ in range(2)]
    assert versions == [1, 1, 2, 2]
    client = MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    found = client.get_model_version_by_alias("toy", "best")
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
    number = registry.register(store, "again", policy, alias="best")
    client = MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    found = client.get_run(client.get_model_version("again", str(number)).run_id)
    assert found.data.tags["key"] == "older"


@pytest.mark.slow
def test_an_alias_is_found_where_a_person_has_put_it(two_versions):
    assert registry.version_of(two_versions, "toy", alias="champion") is None
    assert registry.version_of(two_versions, "unheard-of", alias="champion") is None
    for number in (1, 2, 1):
        registry.point(two_versions, "toy", alias="champion", version=number)
        found = registry.version_of(two_versions, "toy", alias="champion")
        assert found is not None
        assert found.number == number
        assert found.made_at.endswith("+00:00")


def test_the_policy_of_a_version_replaces_the_existing_one(two_versions, tmp_path):
    out = tmp_path / "policy" / "champion"
    for number, weights in ((1, b"old"), (2, b"new")):
        registry.bring(two_versions, "toy", version=number, out=out)
        assert (out / "model.safetensors").read_bytes() == weights
        (out / "left-over").touch()
    registry.bring(two_versions, "toy", version=1, out=out)
    assert [path.name for path in out.iterdir()] == ["model.safetensors"]


def test_notes_on_a_version_can_be_read(two_versions):
    registry.note(two_versions, "toy", version=2, tags={"night": 3, "gain": "0.1"})
    found = registry.notes(two_versions, "toy", version=2)
    assert (found["night"], found["gain"]) == ("3", "0.1")
    assert "night" not in registry.notes(two_versions, "toy", version=1)


def test_a_version_without_files_gives_one_clear_line(two_versions, tmp_path):
    aside = tmp_path / "aside"
    shutil.move(two_versions / "mlruns", aside)
    try:
        with pytest.raises(StoreError, match="version 1: its files are gone") as caught:
            registry.bring(two_versions, "toy", version=1, out=tmp_path / "out")
    finally:
        shutil.move(aside, two_versions / "mlruns")
    assert "\n" not in str(caught.value)


def test_registering_an_untrained_policy_gives_one_clear_line(store, tmp_path):
    with pytest.raises(StoreError, match="no run has kept policy nothing"):
        registry.register(store, "toy", tmp_path / "nothing", alias="best")


TERMS = {"terms": "these", "device": "cpu", "dataset": "3 problems", "protocol": "p"}


def examined(store, tmp_path, name, rewards, **tags):
    """Register a version for each stage with its mark; return the stages."""
    for stage, reward in rewards:
        policy = tmp_path / stage.split("@")[-1]
        policy.mkdir(exist_ok=True)
        (policy / "weights").touch()
        key = f"{name}-{stage}-{reward}"
        with tracking.Run(
            store, stage, key=key, params={}, name=f"{stage}: 3 steps", tags={**TERMS, **tags}
        ) as run:
            run.mark(
                {
                    "success": 0.5,
                    "mean_reward": reward,
                    "mean_reward_low": reward - 0.1,
                    "mean_reward_high": reward + 0.1,
                }
            )
            run.log_checkpoint(policy)
        registry.register(store, name, policy)
    return [stage for stage, _ in rewards]


def test_the_best_version_is_not_the_last(store, tmp_path):
    stages = examined(store, tmp_path, "choice", [("sft", 0.5), ("selfsup@r1", 0.9), ("rl", 0.7)])
    assert registry.point_to_best(store, "choice", stages=stages, terms="these") == 2
    found = registry.version_of(store, "choice", alias=registry.BEST)
    assert found is not None
    assert found.number == 2
    why = registry.notes(store, "choice", version=2)[registry.WHY_BEST]
    assert why.endswith("sft 0.500, selfsup@r1 0.900, rl 0.700")


def test_the_newest_version_of_a_stage_counts(store, tmp_path):
    stages = examined(store, tmp_path, "again-and-again", [("sft", 0.5), ("rl", 0.9)])
    examined(store, tmp_path, "again-and-again", [("rl", 0.4)])
    assert registry.point_to_best(store, "again-and-again", stages=stages, terms="these") == 1
    examined(store, tmp_path, "again-and-again", [("rl", 0.6)])
    assert registry.point_to_best(store, "again-and-again", stages=stages, terms="these") == 4
    notes = {n: registry.notes(store, "again-and-again", version=n) for n in range(1, 5)}
    assert [n for n, each in notes.items() if registry.WHY_BEST in each] == [4]


def test_marks_on_other_terms_are_not_compared(store, tmp_path):
    stages = examined(store, tmp_path, "terms", [("sft", 0.9)], terms="those")
    assert registry.point_to_best(store, "terms", stages=stages, terms="these") is None
    examined(store, tmp_path, "terms", [("rl", 0.4)])
    assert registry.point_to_best(store, "terms", stages=["sft", "rl"], terms="these") == 2


def test_a_version_says_what_made_it_its_marks_and_why(store, tmp_path):
    from mlflow import MlflowClient

    examined(store, tmp_path, "described", [("rl", 0.7)])
    registry.register(store, "described", tmp_path / "rl", why="it won the duel")
    client = MlflowClient(tracking_uri=f"sqlite:///{store / 'mlflow.db'}")
    version = client.get_model_version("described", "1")
    assert version.description == (
        "rl: 3 steps.\n\nOn held-out problems: success 0.500, mean reward 0.700 "
        "(0.600 to 0.800).\n\nIt won the duel."
    )
    assert version.tags["heldout_mean_reward"] == "0.7"
    assert version.tags["device"] == "cpu"
