"""Measure the seconds in which a reference is tried, before anything is judged.

python -m benchmarks.judging.trial_seconds --checkout DIR [--device cuda]
                                           [--problems L1/19 L3/1 ...]

Problems come from a checkout of https://github.com/ScalingIntelligence/KernelBench, of which
nothing is copied. On a GPU they have their own sizes, on a CPU sizes in which inputs or weights
take some 10 MB. Each is tried in a process of its own, as `cudal1.harness.admission.probe` tries
it. On a CPU the processor time of its one thread is counted, which a busy machine hardly changes.
On a GPU the wall time is counted, all kernels of a part awaited.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks.arguments import Parser
from benchmarks.common import RESULTS, machine, print_table
from cudal1.harness.admission import mutants, trial
from cudal1.harness.device.device import Device, find_device
from cudal1.harness.inputs import draws
from cudal1.harness.oracle import (
    answering,
    correctness,
    effect,
    models,
    oracle,
    reference_examination,
    roofline,
)
from cudal1.harness.oracle.calls import Calls
from cudal1.harness.reference.reference import Reference
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.settings import protocols
from cudal1.suite import kernelbench

CPU_SIZES: dict[str, dict[str, Any]] = {
    "level1/1_Square_matrix_multiplication_": {"N": 1024},
    "level1/19_ReLU": {"batch_size": 2048, "dim": 2048},
    "level1/23_Softmax": {"batch_size": 1024, "dim": 4096},
    "level1/33_BatchNorm": {"batch_size": 4, "dim1": 128, "dim2": 128},
    "level2/12_Gemm_Multiply_LeakyReLU": {
        "in_features": 2048,
        "out_features": 2048,
        "batch_size": 512,
    },
    "level3/1_MLP": {
        "batch_size": 16,
        "input_size": 2048,
        "layer_sizes": [4096, 4096],
        "output_size": 2048,
    },
    "level3/44_MiniGPTBlock": {"batch_size": 1, "max_seqlen": 128, "seq_len": 128},
}
CHOSEN = ("L1/1", "L1/19", "L1/23", "L1/33", "L2/12", "L3/1", "L3/44")
PARTS: dict[str, list[tuple[Any, str]]] = {
    "importing": [(trial, "load_reference"), (oracle, "load_reference")],
    "constructing": [(Reference, "make")],
    "weights": [
        (models, "Weights"),
        (models, "load_by_name"),
        (reference_examination, "Weights"),
        (reference_examination, "load_by_name"),
    ],
    "drawing": [(draws.Draws, "_own"), (trial._Reference, "inputs")],
    "families": [(draws, "change_inputs")],
    "copying inputs": [(draws.Draws, "given")],
    "calling": [(Calls, "plain"), (trial._Reference, "call")],
    "in float64": [(Calls, "exact")],
    "comparing": [
        (trial, "distance"),
        (effect, "distance"),
        (reference_examination, "is_noticed"),
        (answering, "reference_error"),
        (reference_examination, "farthest_apart"),
        (correctness.Expected, "admits"),
    ],
    "mutants": [(mutants._Trial, "_try")],
    "work": [(roofline, "read_bytes"), (roofline, "written_bytes"), (roofline, "product_flops")],
}
"""Functions of each part, counted without the other parts that it calls; calls of the trial include
those in float64."""

_clock: Callable[[], float] = time.thread_time
_spent_s: defaultdict[str, float] = defaultdict(float)
_calls: defaultdict[str, int] = defaultdict(int)
_within_s = [0.0]
"""Seconds already counted within each of the open parts."""


def main() -> None:
    """Try, print the table, and write results/trial_seconds_DEVICE.json."""
    parser = Parser(
        prog="python -m benchmarks.judging.trial_seconds",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--checkout", type=Path, required=True, help="of KernelBench")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--problems", nargs="+", default=CHOSEN, help="such as L1/19")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the result file")
    given = parser.parse_args()
    device = find_device(DeviceClass(given.device))
    importlib.import_module("torch._dynamo")  # as the process that forks children has it
    torch.set_num_threads(1)
    watch()
    rows = [
        in_a_child(problem, protocols.load(given.device), device)
        for problem in loaded(given.checkout, device.device_class)
        if f"L{problem.level}/{problem.number}" in given.problems
    ]
    found = {
        "benchmark": f"trial_seconds_{given.device}",
        "measured": time.strftime("%Y-%m-%d"),
        "machine": machine(device),
        "load_average": round(os.getloadavg()[1], 1),
        "problems": rows,
    }
    file: Path = given.out / f"{found['benchmark']}.json"
    file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    named = [part for part in PARTS if any(row["parts_s"].get(part, 0) >= 0.01 for row in rows)]
    print_table(
        ["problem", "inputs, MB", "s", *named, "rest"],
        [
            [
                row["problem"],
                f"{row['input_bytes'] / 1e6:.0f}",
                f"{row['all_s']:.2f}",
                *(f"{row['parts_s'].get(p, 0):.2f} / {row['calls'].get(p, 0)}" for p in named),
                f"{row['all_s'] - sum(row['parts_s'].values()):.2f}",
            ]
            for row in rows
        ],
    )


def loaded(checkout: Path, device_class: DeviceClass) -> list[Problem]:
    """Return problems in the sizes of the device."""
    if device_class is DeviceClass.CUDA:
        return kernelbench.load(checkout, revision=None, sizes=None, device_class=device_class)
    known = {path.parent.name + "/" + path.stem for path in checkout.rglob("level*/*.py")}
    chosen = {name: size for name, size in CPU_SIZES.items() if name in known}
    with tempfile.TemporaryDirectory() as folder:
        sizes = Path(folder, "sizes.yaml")
        sizes.write_text(yaml.safe_dump({"cpu": chosen}), encoding="utf-8")
        return kernelbench.load(checkout, revision=None, sizes=sizes, device_class=device_class)


def watch() -> None:
    """Count the seconds of the parts, in this process and those that it forks."""
    for part, functions in PARTS.items():
        for owner, name in functions:
            setattr(owner, name, _counted(part, getattr(owner, name)))


def _counted(part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        started = _clock()
        _within_s.append(0.0)
        try:
            return function(*args, **kwargs)
        finally:
            took_s = _clock() - started
            _spent_s[part] += took_s - _within_s.pop()
            _within_s[-1] += took_s
            _calls[part] += 1

    return timed


def in_a_child(problem: Problem, protocol: EvalProtocol, device: Device) -> dict[str, Any]:
    """Try a problem in a process of its own, and return the seconds of its parts."""
    receiver, sender = os.pipe()
    if os.fork() == 0:
        os.write(sender, json.dumps(tried(problem, protocol, device)).encode())
        os._exit(0)
    os.close(sender)
    with open(receiver, encoding="utf-8") as file:
        answer = file.read()
    os.wait()
    return json.loads(answer)


def tried(problem: Problem, protocol: EvalProtocol, device: Device) -> dict[str, Any]:
    """Return the seconds of the parts of trying a problem in this process."""
    global _clock
    if device.device_class is DeviceClass.CUDA:
        _clock = _once_all_is_done
    started = _clock()
    seen = trial.try_out(problem, device=device.torch_name, max_reference_ms=1e6, is_examined=True)
    table, _ = mutants.examine(problem, protocol, device)
    return {
        "problem": problem.key,
        "input_bytes": seen["input_bytes"],
        "all_s": round(_clock() - started, 3),
        "rejection": table.rejection,
        "parts_s": {part: round(spent_s, 3) for part, spent_s in _spent_s.items()},
        "calls": dict(_calls),
    }


def _once_all_is_done() -> float:
    torch.cuda.synchronize()
    return time.perf_counter()


if __name__ == "__main__":
    main()
