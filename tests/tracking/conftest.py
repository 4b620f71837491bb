"""Make MLflow stores for tests: an empty one, and one with two policies in its registry."""

from __future__ import annotations

import pytest

from cudal1.tracking import registry
from cudal1.tracking import runs as tracking


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Make one store for all tests: making one takes seconds."""
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory):
    """Make a store with two policies in its registry, told apart by their weights."""
    folder, policy = tmp_path_factory.mktemp("registry"), tmp_path_factory.mktemp("p") / "rl"
    policy.mkdir()
    for weights in (b"old", b"new"):
        (policy / "model.safetensors").write_bytes(weights)
        with tracking.Run(folder, "rl", key=weights.decode(), params={}) as run:
            run.log_checkpoint(policy)
        registry.register(folder, "toy", policy, alias="newest")
    return folder
