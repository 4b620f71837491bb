"""Tests of the experiment: stages with made-up verdicts, and the table of several runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from benchmarks import pipeline
from benchmarks.experiment import table
from benchmarks.experiment.table import Told
from cudal1.ledger import Ledger
from cudal1.settings.params import Params

CHOOSE = Path(pipeline.ROOT) / "benchmarks" / "experiment" / "choose.yaml"


def test_every_row_of_the_plan_can_be_trained_and_is_asked_at_equal_budget(tmp_path: Path) -> None:
    content = yaml.safe_load((pipeline.ROOT / "params.yaml").read_text())
    for name in ("one-gpu", str(CHOOSE)):
        pipeline.put_over(content, pipeline.settings(name))
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(content))
    params = Params.load(tmp_path / "params.yaml")
    asked = {
        name.rpartition("-")[0] for name in yaml.safe_load(CHOOSE.read_text())["search"]["methods"]
    }
    assert asked == {*params.ablation.rows, "r2"}


def told(*rewards: float, shown: int = 0) -> Told:
    return Told({"p": list(rewards)}, [(True, False)] * shown)


def test_later_answers_are_compared_with_repeating_the_best_of_the_first_round() -> None:
    methods = {"a": {1: told(1.0, 2.0, 2.0, 4.0)}}
    assert table.row(methods, "a", "a", 2)["over_echo"] == [1.5]


def test_a_method_is_compared_with_the_base_on_the_seeds_that_both_have() -> None:
    methods = {"a": {1: told(2.0), 2: told(3.0)}, "b": {1: told(1.0)}}
    found = table.row(methods, "a", "b", 1)
    assert found["over_base"]["value"] == 2.0
    assert found["over_base_by_seed"] == [2.0]
    assert found["seeds"] == [1, 2]


def test_copies_are_counted_among_answers_that_were_shown_something() -> None:
    methods = {"a": {1: told(1.0, 2.0, shown=3)}, "b": {1: told(1.0, 2.0)}}
    assert table.row(methods, "a", "b", 1)["copies"] == 1.0
    assert table.row(methods, "b", "b", 1)["copies"] is None


def test_training_is_told_by_its_first_and_last_fifth() -> None:
    steps = [{"reward_raw": float(n)} for n in range(10)]
    assert table.trained({1: steps})["reward_raw"] == [0.5, 8.5]


@pytest.mark.slow
def test_a_simulated_stage_admits_and_judges_without_a_device_and_says_so(tmp_path: Path) -> None:
    over = {
        "problems": {
            "levels": [],
            "generated_train": 2,
            "generated_heldout": 1,
            "generated_operations": [2, 2],
        },
        "generate": {"attempts": 1},
    }
    work = tmp_path / "work"
    pipeline.prepare(work, [pipeline.settings("one-gpu"), over], is_simulated=True)
    for stage in ("problems", "generate@fuser", "generate@gambler"):
        assert pipeline.made(stage, work)["returncode"] == 0
    with Ledger.read(work / "data") as ledger:
        rows = ledger.sql("select distinct device_kind from judged", {}).to_dicts()
        assert rows == [{"device_kind": "SIMULATED"}]
        statuses = {r["status"] for r in ledger.sql("select status from judged", {}).to_dicts()}
    assert statuses <= {"correct", "incorrect"}
    assert "correct" in statuses


def test_a_module_that_was_imported_too_early_is_refused() -> None:
    code = "import tasks.stages, benchmarks.experiment.simulated as s; s.replace()"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=pipeline.ROOT
    )
    assert "was imported before" in ended.stderr
