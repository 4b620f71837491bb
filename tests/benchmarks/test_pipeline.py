"""Tests of the pipeline's benchmark: it runs the tree with other settings, and its sums agree."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from benchmarks import pipeline, smi
from benchmarks.common import RESULTS
from cudal1.ledger import Ledger
from cudal1.settings.params import Params
from tasks.stages import stage_names


@pytest.fixture
def over(tmp_path: Path) -> Path:
    given = tmp_path / "settings.yaml"
    given.write_text("rl: {steps: 3}\n")
    return given


@pytest.mark.slow
def test_a_copy_of_the_tree_has_the_settings_and_the_device_of_this_machine(
    tmp_path: Path, over: Path
) -> None:
    work = tmp_path / "work"
    pipeline.prepare(work, [pipeline.settings(str(over)), {"rl": {"group_size": 6}}])
    params = Params.load(work / "params.yaml")
    shipped = Params.load(pipeline.ROOT / "params.yaml")
    assert params.rl == shipped.rl.model_copy(update={"steps": 3, "group_size": 6})
    assert params.transfer.devices == ("cpu",)
    assert params.policy == shipped.policy
    stage = Path("tasks") / "rl.py"
    assert (work / stage).read_bytes() == (pipeline.ROOT / stage).read_bytes()
    assert (work / ".dvc" / "config").is_file()


def test_a_profile_is_found_by_its_name() -> None:
    assert pipeline.settings("one-gpu")["device"] == "cuda"


def test_the_benchmark_counts_the_steps_in_the_ledger(tmp_path: Path) -> None:
    assert pipeline.steps_of(tmp_path) == []
    with Ledger.open(tmp_path / "data") as ledger:
        ledger.begin("rl")
        ledger.add_steps(2, {"reward_raw": 0.25})
        ledger.add_steps(1, {"reward_raw": 0.5, "step_s": 3.0})
    assert pipeline.steps_of(tmp_path) == [
        {"step": 1, "reward_raw": 0.5, "step_s": 3.0},
        {"step": 2, "reward_raw": 0.25},
    ]


@pytest.mark.slow
def test_the_benchmark_resumes_after_a_failed_stage_with_the_same_settings_only(
    tmp_path: Path, over: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = {"problems": [0], "policy": [1, 0]}
    asked: list[str] = []

    def made(stage: str, _: Path) -> dict[str, object]:
        asked.append(stage)
        return {"returncode": ended[stage].pop(0), "wall_s": 1.0, "busy_percent": {}}

    monkeypatch.setattr(pipeline, "made", made)
    arguments = ["--until", "policy", "--work", str(tmp_path / "work"), "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["pipeline", "--settings", str(over), *arguments])
    with pytest.raises(SystemExit, match="policy ended with 1; ask again"):
        pipeline.main()
    result = tmp_path / "pipeline_cpu.json"
    assert not json.loads(result.read_text())["is_complete"]
    pipeline.main()
    found = json.loads(result.read_text())
    assert found["is_complete"]
    assert [run["returncode"] for run in found["runs"]] == [0, 1, 0]
    assert asked == ["problems", "policy", "policy"]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "argv", [*sys.argv, "--simulated"])
        with pytest.raises(SystemExit, match="begun with other settings"):
            pipeline.main()
    over.write_text("rl: {steps: 4}\n")
    with pytest.raises(SystemExit, match="begun with other settings"):
        pipeline.main()


def test_the_committed_result_says_whether_it_is_complete() -> None:
    found = json.loads((RESULTS / "pipeline_cuda.json").read_text())
    done = {run["stage"] for run in found["runs"] if run["returncode"] == 0}
    devices = {f"transfer@{name}" for name in found["params"]["transfer"]["devices"]}
    methods = {f"search@{name}" for name in found["params"]["search"]["methods"]}
    names = stage_names(until=found["until"], root=pipeline.ROOT)  # of other parameters
    fixed = {name for name in names if not name.startswith(("transfer@", "search@"))}
    wanted = fixed | devices | methods
    assert found["is_complete"] == (wanted <= done)


def test_the_samples_of_each_gpu_are_kept_by_its_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with smi.watched("utilization.gpu", every_ms=100) as nothing:
        pass
    assert nothing == {}
    assert smi.ask("driver_version") is None
    played = tmp_path / "nvidia-smi"
    played.write_text("#!/bin/sh\nprintf '0, 10\\n1, 20\\n0, 30\\n1, [N/A]\\n'\n")
    played.chmod(played.stat().st_mode | stat.S_IXUSR)
    with smi.watched("utilization.gpu", every_ms=100) as busy:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
    assert busy == {"0": [10, 30], "1": [20]}
    assert smi.ask("driver_version") == "0, 10"
    played.write_text("#!/bin/sh\nexit 9\n")
    assert smi.ask("driver_version") is None
