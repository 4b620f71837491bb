"""Tests that bad input ends a stage with one line that names the fault and the remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.project import Project

pytestmark = pytest.mark.slow


def last_line(text: str) -> str:
    return text.strip().splitlines()[-1]


def refused(project: Project, *command: str) -> str:
    """Return the only line that a refused stage prints."""
    done = project.run(*command)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stdout
    return last_line(done.stdout)


def test_an_unknown_key_is_named(fresh_project: Project) -> None:
    fresh_project.edit_params(lambda params: params["filter"].update(kep=2))
    assert "filter.kep" in refused(fresh_project, "tasks.problems")


def test_a_wrong_value_is_named(fresh_project: Project) -> None:
    fresh_project.edit_params(lambda params: params["problems"].update(generated_train="many"))
    assert "problems.generated_train" in refused(fresh_project, "tasks.problems")


def test_an_absent_gpu_is_reported(fresh_project: Project) -> None:
    fresh_project.run("tasks.problems")
    fresh_project.edit_params(lambda params: params.update(device="cuda"))
    line = refused(fresh_project, "tasks.generate", "--item", "fuser")
    assert "device" in line
    assert "cpu" in line


def test_a_missing_checkout_is_named(fresh_project: Project) -> None:
    def point(params: dict[str, Any]) -> None:
        params["problems"].update(source="kernelbench", path="no/such/folder")

    fresh_project.edit_params(point)
    assert "no/such/folder" in refused(fresh_project, "tasks.problems")


def test_a_missing_api_key_is_named(
    fresh_project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOBODYS_API_KEY", raising=False)
    fresh_project.run("tasks.problems")

    def ask(params: dict[str, Any]) -> None:
        params["generate"]["providers"] = {
            "hosted": {
                "kind": "openai",
                "base_url": "http://127.0.0.1:9/v1",
                "model": "m",
                "api_key_env": "NOBODYS_API_KEY",
                "temperature": None,
                "top_p": None,
                "max_tokens": None,
                "max_completion_tokens": None,
                "concurrency": 1,
                "usd_per_million_prompt_tokens": 0.0,
                "usd_per_million_completion_tokens": 0.0,
                "usd_per_million_cached_prompt_tokens": None,
                "reasoning_effort": None,
                "requests_per_minute": None,
                "tokens_per_minute": None,
                "budget_usd": None,
                "timeout_s": 1.0,
                "max_retries": 0,
            }
        }

    fresh_project.edit_params(ask)
    assert "NOBODYS_API_KEY" in refused(fresh_project, "tasks.generate", "--item", "hosted")


def test_an_unknown_item_is_refused_with_the_known_names(fresh_project: Project) -> None:
    assert "fuser" in refused(fresh_project, "tasks.generate", "--item", "fusre")


def test_a_missing_input_names_the_stage_to_run(fresh_project: Project) -> None:
    line = refused(fresh_project, "tasks.filter")
    assert "data/problems.parquet" in line
    assert "dvc repro" in line


def test_a_corrupt_product_is_named(fresh_project: Project) -> None:
    fresh_project.run("tasks.problems")
    (fresh_project.data / "problems.parquet").write_bytes(b"PAR1 but not really")
    assert "problems.parquet" in refused(fresh_project, "tasks.generate", "--item", "fuser")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_reported(fresh_project: Project) -> None:
    folder = fresh_project.data / "metrics"
    folder.mkdir(parents=True)
    (folder / "problems.json").symlink_to("/dev/full")
    assert "disk full" in refused(fresh_project, "tasks.problems")
