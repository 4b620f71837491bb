"""KernelBench: evaluate a run's kernels with this judge instead of KernelBench's own.

    cudal1 serve --suite kernelbench:../KernelBench --device cuda
    CUDAL1_URL=… CUDAL1_TOKEN=… python kernelbench_evaluator.py runs/my_run eval_results.json

A run's folder has files such as `level_1_problem_23_sample_0_kernel.py`, all of one level. The
result has the form of KernelBench's eval_results.json, for its `benchmark_eval_analysis.py`: by
problem, `compiled`, `correctness`, `runtime` (ms), and the certified speedup in `metadata`.
"""

import json
import os
import re
import sys
from pathlib import Path

from cudal1.serving.client import RemoteJudge
from cudal1.serving.messages import Answer, Submission
from cudal1.verdict import Status

KERNEL = re.compile(r"level_(\d+)_problem_(\d+)_sample_(\d+)_kernel\.py")


def evaluated(run: Path, judge: RemoteJudge) -> dict[str, list[dict]]:
    """Return the results of a run's kernels, by the problem's number."""
    named = [(KERNEL.fullmatch(path.name), path) for path in run.iterdir()]
    kernels = {tuple(map(int, name.groups())): path for name, path in named if name}
    places = sorted(kernels)
    if len({level for level, _, _ in places}) != 1:
        raise SystemExit(f"{run}: needs kernels of one level; the results name no level")
    answers = judge.judge_many(
        [
            Submission(
                problem=f"{level}/{problem}", source=kernels[level, problem, sample].read_text()
            )
            for level, problem, sample in places
        ]
    )
    found: dict[str, list[dict]] = {}
    for (_, problem, sample), answer in zip(places, answers, strict=True):
        found.setdefault(str(problem), []).append({"sample_id": sample, **result_of(answer)})
    return found


def result_of(answer: Answer) -> dict:
    """Return a verdict as KernelBench's `KernelExecResult`."""
    verdict = answer.verdict
    timed = None if verdict is None else verdict.measurement
    return {
        "compiled": verdict is not None and verdict.status is not Status.NO_BUILD,
        "correctness": verdict is not None and verdict.is_successful,
        "runtime": -1.0 if timed is None else timed.candidate_us / 1000,
        "runtime_stats": {},
        "metadata": {
            "certified_speedup": answer.speedup,
            "reason": answer.reason if verdict is None else verdict.reason,
            "hardware": None if verdict is None else verdict.device_kind,
        },
    }


if __name__ == "__main__":
    with RemoteJudge(os.environ["CUDAL1_URL"], os.environ["CUDAL1_TOKEN"]) as opened:
        results = evaluated(Path(sys.argv[1]), opened)
    Path(sys.argv[2]).write_text(json.dumps(results, indent=1))
