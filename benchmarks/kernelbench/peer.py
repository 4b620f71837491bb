"""Run KernelBench's own batch evaluation of candidates, which `benchmarks.kernelbench` times.

python -m benchmarks.kernelbench.peer JOB, with a checkout's `src` and `scripts` on PYTHONPATH

These parts come from the checkout, unchanged:

* `scripts/eval_from_generations.py` as a module, with all that it imports;
* its `EvalConfig`, which brings 5 correctness and 100 timed trials, CUDA events, float32, 180 s for
  each candidate and no prebuilt cache;
* its `batch_eval`, which starts one process after the other, each for one candidate, by the start
  method that its `main` sets;
* its `set_gpu_arch` and `construct_kernelbench_dataset`.

Left out of its `main`: reading options, looking for what has been evaluated before, and pass@k. A
run of it has one level and one backend, and a problem as many samples as every other. So each
candidate is a run here: sample 0 of its problem. Its candidates share nothing but the process that
starts theirs, and this is one for all.

Each of its processes imports this module again, so nothing but the standard library is at the top.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import shutil
import sys
import time
from pathlib import Path
from typing import Any

SAMPLE = 0


def main() -> None:
    """Evaluate until the job's deadline, with a line in its `lines` for each candidate."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    script: Any = importlib.import_module("eval_from_generations")
    multiprocessing.set_start_method("spawn")
    script.set_gpu_arch([job["arch"]])
    levels = sorted({item["level"] for item in job["work"]})
    datasets = {
        level: script.construct_kernelbench_dataset(level=level, source="local") for level in levels
    }
    with Path(job["lines"]).open("a", encoding="utf-8") as lines:
        found: dict[str, Any] = {"start_s": time.monotonic() - job["began"]}
        print(json.dumps(found), file=lines, flush=True)
        for item in job["work"]:
            if time.monotonic() >= job["deadline"]:
                return
            found = evaluate(
                script, datasets[item["level"]], item, Path(job["folder"]), job["arch"]
            )
            print(json.dumps(found), file=lines, flush=True)


def evaluate(script: Any, dataset: Any, item: Any, folder: Path, arch: str) -> dict[str, Any]:
    """Return the result of `batch_eval` on one candidate, from an empty folder, and its time."""
    name, level, number = item["name"], item["level"], item["problem_id"]
    run = folder / "runs" / name
    for place in (run, folder / "cache" / name):
        shutil.rmtree(place, ignore_errors=True)
    run.mkdir(parents=True)
    kernel = run / f"level_{level}_problem_{number}_sample_{SAMPLE}_kernel.py"
    kernel.write_text(item["source"], encoding="utf-8")
    config = script.EvalConfig()
    config.run_name, config.level, config.dataset_src = name, level, "local"
    config.runs_dir, config.kernel_eval_build_dir = str(run.parent), str(folder / "cache")
    config.gpu_arch, config.backend = [arch], item["backend"]
    results = run / "eval_results.json"
    error = None
    started = time.monotonic()
    try:
        script.batch_eval([(number, SAMPLE)], config, dataset, str(run), str(results))
    except AttributeError as raised:
        # it takes a failed build for one that found a lock, and then has no result
        error = str(raised)
    wall_s = time.monotonic() - started
    said = json.loads(results.read_text(encoding="utf-8"))[str(number)][0] if not error else None
    return {"name": name, "wall_s": wall_s, "result": said, "error": error}


if __name__ == "__main__":
    main()
