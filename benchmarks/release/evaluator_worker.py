"""Run KernelBench's own evaluator on one candidate; `evaluating` starts and times this script.

python evaluator_worker.py JOB

From a checkout, unchanged: `eval_kernel_against_ref` of `src/kernelbench/eval.py`, as its
`scripts/eval_from_generations.py` calls it by default: 5 correctness and 100 timed trials, CUDA
events, float32, an empty folder for builds. Packages that its modules import for other purposes
(clients of language models) may be absent: empty modules stand in for them, which can only make it
start faster.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

UNUSED = {
    "dotenv": ("load_dotenv",),
    "openai": ("OpenAI",),
    "litellm": ("completion",),
    "requests": (),
    "tqdm": ("tqdm",),
}
"""Packages of which the evaluator uses nothing, and the names that its modules import from them."""


def main() -> None:
    """Evaluate, and write the evaluator's result."""
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.path.insert(0, str(Path(job["checkout"]) / "src"))
    stand_in()
    torch: Any = importlib.import_module("torch")
    evaluator: Any = importlib.import_module("kernelbench.eval")
    source = Path(job["candidate"]).read_text(encoding="utf-8")
    said = evaluator.eval_kernel_against_ref(
        original_model_src=Path(job["reference"]).read_text(encoding="utf-8"),
        custom_model_src=source,
        num_correct_trials=5,
        num_perf_trials=100,
        measure_performance=True,
        timing_method="cuda_event",
        build_dir=job["builds"],
        device=torch.device(job["device"]),
        backend="triton" if "import triton" in source else "cuda",
        precision=torch.float32,
    )
    result = {"compiled": False, "correct": False, "reason": "it found a busy lock"}
    if said is not None:
        result = {
            "compiled": said.compiled,
            "correct": said.correctness,
            "candidate_ms": said.runtime,
            "reference_ms": said.ref_runtime,
            "reason": one_line(said.metadata),
        }
    Path(job["result"]).write_text(json.dumps(result), encoding="utf-8")


def stand_in() -> None:
    """Put empty modules in the place of packages that are absent and unused."""
    for name, contents in UNUSED.items():
        if importlib.util.find_spec(name) is None:
            module = ModuleType(name)
            for each in contents:
                setattr(module, each, lambda *_, **__: None)
            sys.modules[name] = module


def one_line(metadata: dict[str, Any]) -> str:
    """Return its further output, without names of hardware and long traces, in one line."""
    told = {
        name: value
        for name, value in metadata.items()
        if name not in ("hardware", "device") and "traceback" not in name
    }
    return " ".join("; ".join(f"{name}: {value}" for name, value in told.items()).split())[:300]


if __name__ == "__main__":
    main()
