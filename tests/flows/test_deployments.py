"""Tests that prefect.yaml agrees with README, docs/operating.md and params.yaml."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from cudal1.errors import ConfigError
from cudal1.settings.params import Params
from tasks.server.deployments import POOL, wanted_deployments

ROOT = Path(__file__).parents[2]
CONTENT: dict[str, Any] = yaml.safe_load((ROOT / "prefect.yaml").read_text())
DEPLOYMENTS: dict[str, dict[str, Any]] = {d["name"]: d for d in CONTENT["deployments"]}


def test_each_device_of_params_has_a_deployment_on_a_queue_of_its_name() -> None:
    devices = Params.load(ROOT / "params.yaml").transfer.devices
    transfers = [name for name in DEPLOYMENTS if name.startswith("transfer-")]
    assert transfers == [f"transfer-{device}" for device in devices]
    for device in devices:
        found = DEPLOYMENTS[f"transfer-{device}"]
        assert found["parameters"] == {"device": device}
        assert found["work_pool"]["work_queue_name"] == device


def test_only_nights_have_a_schedule() -> None:
    assert [name for name, d in DEPLOYMENTS.items() if d.get("schedules")] == ["nightly"]
    (schedule,) = DEPLOYMENTS["nightly"]["schedules"]
    assert schedule["active"] is True
    assert len(schedule["cron"].split()) == 5


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_no_deployment_overlaps_with_itself(name: str) -> None:
    limit = DEPLOYMENTS[name]["concurrency_limit"]
    assert limit == {"limit": 1, "collision_strategy": "CANCEL_NEW"}


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_a_deployment_runs_an_existing_flow_in_the_workers_own_checkout(name: str) -> None:
    module, _, function = DEPLOYMENTS[name]["entrypoint"].rpartition(".")
    assert f"def {function}(" in (ROOT / f"{module.replace('.', '/')}.py").read_text()
    pool = DEPLOYMENTS[name]["work_pool"]
    assert (pool["name"], pool["job_variables"]["working_dir"]) == (POOL, ".")
    assert pool["job_variables"]["command"].startswith("python -I ")
    assert str(ROOT) not in (ROOT / "prefect.yaml").read_text()


def test_a_device_without_a_deployment_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("prefect.yaml", "params.yaml"):
        shutil.copy(ROOT / name, tmp_path)
    params = (tmp_path / "params.yaml").read_text()
    (tmp_path / "params.yaml").write_text(params.replace("devices: [cpu]", "devices: [cpu, h100]"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="transfer-h100"):
        wanted_deployments()


def test_a_missing_file_gives_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"prefect\.yaml: cannot be read") as caught:
        wanted_deployments()
    assert "\n" not in str(caught.value)
