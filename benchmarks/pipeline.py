"""Run the pipeline on this machine from nothing: stage after stage, as `dvc repro` makes them.

    python -m benchmarks.pipeline [--settings one-gpu] [--until rl] [--work FOLDER] [--out FOLDER]

A copy of the tree in FOLDER gets a profile's settings, or those of YAML files, put over params.yaml
one after the other. For each stage the result has its seconds, how busy each GPU was (nvidia-smi,
twice a second), and the numbers that it left; of `rl` also each step's numbers. `--stages` makes
those stages alone, where the others are made.

Run again with the same FOLDER, it goes on where it was stopped or killed, and earlier measurements
stay in the result. It needs what the pipeline needs, without Prefect.

With `--simulated` speeds are made up (`benchmarks.experiment.simulated`), and nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import chdir
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks import smi
from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, ROOT, note, print_table
from benchmarks.machine import cpu_name, versions
from cudal1.harness.device.device import find_device
from cudal1.ledger import Ledger
from cudal1.problem import DeviceClass
from cudal1.settings import profiles
from cudal1.settings.params import Params
from cudal1.settings.settings_file import put_over, read_settings
from tasks.stages import stage_names
from tasks.transfer import device_name

TREE = ("cudal1", "tasks", "dvc.yaml", "pyproject.toml")
START = "cudal1/start.py"
"""The file by which dvc.yaml starts a stage's module."""
PACKAGES = ("torch", "triton", "transformers", "trl", "duckdb", "polars", "dvc", "mlflow")
PARTS = ("generate_s", "build_s", "judge_s", "train_s", "rest_s", "step_s", "idle", "reused")
EVERY_MS = 500
SIMULATED = "SIMULATED"
"""The device of made-up verdicts."""


def main() -> None:
    """Run, print a table, and write results/pipeline_DEVICE.json."""
    parser = Parser(
        prog="python -m benchmarks.pipeline",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--settings", nargs="+", default=["one-gpu"], help="profiles, YAML files")
    parser.add_argument("--until", default="rl", help="the last stage")
    parser.add_argument("--stages", nargs="+", help="these alone, such as ablation@rank")
    parser.add_argument("--simulated", action="store_true", help="with made-up speeds")
    parser.add_argument("--work", type=Path, default=Path("/tmp/cudal1-pipeline"))
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    over = [settings(name) for name in given.settings]
    kept = given.work / "measured.json"
    if not kept.exists():
        prepare(given.work, over, is_simulated=given.simulated)
        begun = {"settings": over, "is_simulated": given.simulated, "runs": []}
        kept.write_text(json.dumps(begun), encoding="utf-8")
    known = json.loads(kept.read_text(encoding="utf-8"))
    if (known["settings"], known["is_simulated"]) != (over, given.simulated):
        sys.exit(f"{given.work}: was begun with other settings; name those, or another --work")
    with chdir(given.work):  # DVC names stages as they are called from here
        stages = given.stages or stage_names(until=given.until)
    runs: list[dict[str, Any]] = known["runs"]
    done = {run["stage"] for run in runs if run["returncode"] == 0}
    for stage in (stage for stage in stages if stage not in done):
        note(stage)
        run: dict[str, Any] = {"stage": stage, "at": time.strftime("%H:%M:%S"), "returncode": None}
        runs.append(run)
        save(given, runs)  # a stage that is cut off is noted, too
        run |= made(stage, given.work)
        done |= {stage} if run["returncode"] == 0 else set()
        kept.write_text(json.dumps(known), encoding="utf-8")
        save(given, runs, is_complete=done >= set(stages))
        if run["returncode"]:
            sys.exit(f"{stage} ended with {run['returncode']}; ask again to go on")
    show(runs, steps_of(given.work))


def settings(name: str) -> Mapping[str, Any]:
    """Return the settings to put over params.yaml: a profile's, or a YAML file's."""
    if Path(name).suffix:
        import yaml

        return yaml.safe_load(Path(name).read_text(encoding="utf-8"))
    return profiles.load(name, profiles.TrainingProfile).params


def prepare(work: Path, over: Sequence[Mapping[str, Any]], *, is_simulated: bool = False) -> None:
    """Copy the tree with these settings; winners are judged again on this very device."""
    import yaml

    work.mkdir(parents=True, exist_ok=True)
    for name in (*TREE, "benchmarks") if is_simulated else TREE:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, work / name, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / name, work / name)
    content = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for each in over:
        put_over(content, each)
    if is_simulated:
        stages = (work / "dvc.yaml").read_text(encoding="utf-8")
        stages = stages.replace(
            f"{START} tasks.", f"{START} benchmarks.experiment.simulated tasks."
        )
        (work / "dvc.yaml").write_text(stages, encoding="utf-8")
    else:
        here = device_name(find_device(DeviceClass(content["device"])).kind)
        put_over(content, {"transfer": {"devices": [here]}})
    (work / "params.yaml").write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
    dvc = [sys.executable, "-m", "dvc"]
    subprocess.run([*dvc, "init", "--no-scm", "--force", "--quiet"], cwd=work, check=True)
    subprocess.run([*dvc, "config", "core.analytics", "false"], cwd=work, check=True)


def made(stage: str, work: Path) -> dict[str, Any]:
    """Run one stage; return its exit code, its seconds, and each GPU's busy share in per cent."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    started = time.monotonic()
    with smi.watched("utilization.gpu", every_ms=EVERY_MS) as busy:
        ended = subprocess.run(
            [sys.executable, "-m", "dvc", "repro", "--single-item", stage],
            cwd=work,
            check=False,
            env={**os.environ, "PATH": path},
        )
    return {
        "returncode": ended.returncode,
        "wall_s": time.monotonic() - started,
        "busy_percent": {index: fmean(seen) for index, seen in busy.items()},
    }


def steps_of(work: Path) -> list[dict[str, float]]:
    """Return the numbers of each step of stage `rl` so far."""
    steps: dict[int, dict[str, float]] = {}
    if (work / "data" / "ledger.duckdb").exists():
        with Ledger.read(work / "data") as ledger:
            for row in ledger.query("steps", stage="rl").to_dicts():
                steps.setdefault(row["step"], {"step": row["step"]})[row["name"]] = row["value"]
    return [steps[step] for step in sorted(steps)]


def save(
    given: argparse.Namespace, runs: Sequence[Mapping[str, Any]], *, is_complete: bool = False
) -> None:
    """Write the results so far."""
    params = read_settings(given.work / "params.yaml", Params, remedy="remove the folder")
    found = {
        "benchmark": "pipeline",
        "measured": time.strftime("%Y-%m-%d"),
        "device": SIMULATED if given.simulated else find_device(params.device).kind,
        "driver": smi.ask("driver_version"),
        "cpu": cpu_name(),
        "versions": versions(*PACKAGES),
        "settings": given.settings,
        "until": given.stages or given.until,
        "is_complete": is_complete,
        "params": params.model_dump(mode="json"),
        "runs": runs,
        "metrics": {
            path.stem: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted((given.work / "data" / "metrics").glob("*.json"))
        },
        "rl_steps": steps_of(given.work),
    }
    given.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(found, indent=1).replace(sys.prefix, ".")
    (given.out / f"pipeline_{params.device}.json").write_text(text + "\n", encoding="utf-8")


def show(runs: Sequence[Mapping[str, Any]], steps: Sequence[Mapping[str, float]]) -> None:
    """Print the use of the time, by stages and by steps; a killed step has fewer numbers."""
    print_table(
        ["stage", "ended", "seconds", "GPUs at work"],
        [
            [
                run["stage"],
                str(run["returncode"]),
                f"{run['wall_s']:.0f}",
                " ".join(f"{share:.0f}%" for share in run["busy_percent"].values()),
            ]
            for run in runs
            if run["returncode"] is not None
        ],
    )
    columns = ("success", "reward_raw", *PARTS)
    print_table(
        ["step", *columns],
        [
            [f"{step['step']:.0f}", *(f"{step[c]:.2f}" if c in step else "-" for c in columns)]
            for step in steps
        ],
    )


if __name__ == "__main__":
    main()
