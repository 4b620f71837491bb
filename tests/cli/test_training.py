"""Tests of the memory forecast of training, and of a profile put into params.yaml."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from cudal1.settings import profiles
from cudal1.settings.params import Params
from cudal1.settings.profiles import TrainingProfile

pytestmark = pytest.mark.slow

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SHIPPED = Path(__file__).parents[2] / "params.yaml"
GIB = 1 << 30
STAGES = ["sft", "selfsup", "tuned", "rl", "challenger"]


@pytest.fixture
def params(tmp_path: Path) -> Path:
    path = tmp_path / "params.yaml"
    path.write_text(SHIPPED.read_text())
    return path


def test_every_training_stage_is_listed(run: Run, params: Path) -> None:
    done = run("training", "memory", "--json")
    assert done.returncode == 0, done.stderr
    assert list(json.loads(done.stdout)["stages"]) == STAGES


@pytest.mark.parametrize("name", profiles.names(TrainingProfile))
def test_a_profile_fits_on_gpus_of_80_gb(run: Run, params: Path, name: str) -> None:
    """A tenth is left for memory that the forecast does not count."""
    done = run("training", "memory", "--profile", name, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    scale = profiles.load(name, TrainingProfile).params["scale"]
    assert told["processes"] == scale["processes"]
    assert all(stage["peak"] < 0.9 * 80e9 for stage in told["stages"].values())


def test_the_table_has_one_column_per_stage(run: Run, params: Path) -> None:
    lines = run("training", "memory").stdout.splitlines()
    assert lines[1].split() == STAGES
    assert lines[-1].startswith("peak")


@pytest.mark.parametrize("name", profiles.names(TrainingProfile))
def test_a_profile_in_params_is_valid_and_changes_only_its_keys(
    run: Run, params: Path, name: str
) -> None:
    done = run("training", "use", name)
    assert done.returncode == 0, done.stderr
    found, before = Params.load(params), Params.load(SHIPPED)
    ready = profiles.load(name, TrainingProfile).params
    for section in Params.model_fields:
        changed = ready.get(section)
        now, then = (each.model_dump(mode="json")[section] for each in (found, before))
        if isinstance(changed, dict):
            assert now == {**then, **changed}
        else:
            assert now == (changed or then)
    assert "# one a GPU" in params.read_text()


def test_settings_with_which_rl_could_not_train_are_refused(run: Run, params: Path) -> None:
    """Twenty exemplars of 256 tokens are more than the embedded policy's 4096 positions."""
    section, knob = "rl:\n", "num_exemplars: 2 "
    before, after = params.read_text().split(section, 1)
    params.write_text(before + section + after.replace(knob, "num_exemplars: 20 ", 1))
    done = run("training", "memory")
    assert done.returncode == 2
    assert done.stderr.startswith("rl: a prompt and its answer may take 6076 tokens, but the")
    assert "challenger: a prompt and its answer may take" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_profile_is_named_with_the_known_ones(run: Run, params: Path) -> None:
    done = run("training", "use", "nobody")
    assert done.returncode == 2
    assert "no profile nobody; there are coder-7b" in done.stderr


def test_a_missing_policy_gives_one_line(run: Run, params: Path) -> None:
    params.write_text(params.read_text().replace("source: embedded", "source: /no/such/folder"))
    done = run("training", "memory", HF_HUB_OFFLINE="1")
    assert done.returncode == 2
    assert done.stderr.startswith("policy.source /no/such/folder: no configuration")
    assert len(done.stderr.splitlines()) == 1
