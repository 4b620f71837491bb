"""Tests of flows/night/dvc.yaml: its stages depend on the right code and disturb no other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from cudal1.settings.params import Params
from tasks.stages import stage_names
from tests.test_wiring import (
    DVC,
    ROOT,
    SHARED_MODULES,
    SHARED_SECTIONS,
    imports,
    modules_of,
    sections_read,
)

NIGHT: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "flows" / "night" / "dvc.yaml").read_text()
)["stages"]
LAST = "flows/night/dvc.yaml:promote"
PASSED_ON = {
    "tasks/night/night.py": "says which night it is: night.json is a dependency",
    "tasks/night/duel.py": "promote reads what it leaves",
    "tasks/night/lessons.py": "tuned and challenger read what it leaves",
    "cudal1/selection/duel.py": "promote reads what duel made with it",
}
"""Files that a stage may import without naming them, besides `SHARED_MODULES`, each with a
reason."""


def outs(stage: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {path: options for out in stage["outs"] for path, options in out.items()}


def test_the_flow_runs_the_stages_in_this_order_after_problems() -> None:
    names = [f"flows/night/dvc.yaml:{name}" for name in NIGHT]
    assert stage_names(until=LAST, root=ROOT) == ["problems", *names]


def test_a_run_of_the_pipeline_has_no_stage_of_a_night() -> None:
    assert not [name for name in stage_names(until="report", root=ROOT) if "nightly" in name]


def test_no_stage_of_the_pipeline_has_the_name_of_a_nights_stage() -> None:
    """Ledger and metrics identify stages by name."""
    assert set(NIGHT) & set(DVC) == set()


def test_no_stage_of_the_pipeline_reads_or_makes_a_nights_files() -> None:
    left = {path for stage in NIGHT.values() for path in outs(stage)}
    text = (ROOT / "dvc.yaml").read_text()
    assert [path for path in left if path in text] == []


@pytest.mark.parametrize("name", NIGHT)
def test_a_stage_runs_the_module_of_its_name_in_the_projects_folder(name: str) -> None:
    assert NIGHT[name]["cmd"] == f"python -I -X utf8 cudal1/start.py tasks.night.{name}"
    assert NIGHT[name]["wdir"] == "../.."


@pytest.mark.parametrize("name", NIGHT)
def test_every_stage_depends_on_its_night(name: str) -> None:
    """The dependency keeps DVC from taking an earlier night's result for this one's."""
    assert "data/nightly/night.json" in NIGHT[name]["deps"]


@pytest.mark.parametrize("name", NIGHT)
def test_no_output_of_a_night_is_in_dvcs_cache(name: str) -> None:
    """If one were, `dvc pull` in a fresh clone would look for it, and fail."""
    assert all(options["cache"] is False for options in outs(NIGHT[name]).values())


@pytest.mark.parametrize("name", NIGHT)
def test_a_stage_declares_the_sections_that_it_reads(name: str) -> None:
    modules = modules_of(f"night/{name}")
    sources = [path.read_text() for path in modules]
    read = set[str]().union(*(sections_read(source) for source in sources))
    if any("import pair" in source for source in sources):  # which makes a policy's prompts
        read.add("policy")
    declared = set(NIGHT[name].get("params", []))
    # `examine`, which only examines in some stages, reads `evaluation`
    assert read - SHARED_SECTIONS <= declared
    assert declared - SHARED_SECTIONS <= read | {name}
    assert declared <= set(Params.model_fields)


@pytest.mark.parametrize("name", NIGHT)
def test_a_stage_depends_on_the_code_that_makes_its_result(name: str) -> None:
    declared = [str(dep) for dep in NIGHT[name]["deps"]]
    needed = imports(ROOT / "tasks" / "night" / f"{name}.py") - {f"tasks/night/{name}.py"}
    known = (*declared, *SHARED_MODULES, *PASSED_ON)
    assert {m for m in needed if not m.startswith(known)} == set()
    paths = [dep for dep in declared if not dep.startswith("data/")]
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_file_holds_no_path_of_this_machine() -> None:
    assert str(Path.home()) not in (ROOT / "flows" / "night" / "dvc.yaml").read_text()


def test_a_challenger_depends_on_the_code_of_the_stage_that_it_repeats() -> None:
    code = {dep for dep in DVC["rl"]["deps"] if not dep.startswith(("data/", "cudal1/prompts"))}
    assert code - set(NIGHT["challenger"]["deps"]) == set()
