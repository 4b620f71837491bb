"""The pipeline's benchmark: it runs the tree with other settings, and what it says adds up."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from benchmarks import pipeline
from benchmarks.common import RESULTS
from cudal1.params import Params
from tasks.stages import stage_names


def test_a_copy_of_the_tree_has_the_settings_and_this_machines_device(tmp_path: Path) -> None:
    given = tmp_path / "settings.yaml"
    given.write_text("rl: {steps: 3}\n")
    work = tmp_path / "work"
    pipeline.prepare(work, pipeline.settings(str(given)))
    params = Params.load(work / "params.yaml")
    shipped = Params.load(pipeline.ROOT / "params.yaml")
    assert params.rl == shipped.rl.model_copy(update={"steps": 3})
    assert params.transfer.devices == ("cpu",)
    assert params.policy == shipped.policy
    assert (work / "tasks" / "rl.py").read_bytes() == (
        pipeline.ROOT / "tasks" / "rl.py"
    ).read_bytes()
    assert (work / ".dvc" / "config").is_file()


def test_a_profile_is_found_by_its_name() -> None:
    assert pipeline.settings("one-gpu")["device"] == "cuda"


def test_steps_are_read_from_the_plot_empty_cells_left_out(tmp_path: Path) -> None:
    plot = tmp_path / "data" / "plots" / "rl.csv"
    plot.parent.mkdir(parents=True)
    with plot.open("w", newline="") as file:
        csv.writer(file).writerows([["step", "loss"], ["1", "0.5"], ["2", ""]])
    assert pipeline.steps_of(tmp_path) == [{"step": 1.0, "loss": 0.5}, {"step": 2.0}]
    assert pipeline.steps_of(tmp_path / "elsewhere") == []


def test_the_result_says_whether_it_is_whole() -> None:
    found = json.loads((RESULTS / "pipeline_cuda.json").read_text())
    done = {run["stage"] for run in found["runs"] if run["returncode"] == 0}
    wanted = set(stage_names(until=found["until"], root=pipeline.ROOT))
    assert found["is_complete"] == (wanted <= {name.split(":")[-1] for name in done})
