"""Time two modules plainly in one process, as honest people do, for comparison with bursts.

Run as `python -m benchmarks.timing.plain`, it reads requests from standard input and answers in
JSON. It is a process of its own, so that neither the judge's heap nor its threads play a part. Both
modules get the same weights and inputs and alternate in random order. The clock is CUDA events, or
the wall clock on a CPU. The ratio is the median over rounds. TF32 is off, as in the strict class.
Nothing here is safe against a cheat.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import types
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

ROUNDS = 21
ROUND_S = 0.02
"""Seconds of a round for each module: long against any clock's resolution."""
MIN_CALLS = 3
INPUT_BYTES = {"cpu": 64 << 20, "cuda": 512 << 20}
"""Bytes of inputs in turn: more than any cache holds where they are large, as in bursts."""
MAX_INPUTS = 24
ENVIRONMENT = {
    # as workers have it: a tensor's memory is not mapped anew at each call, and one thread
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1),
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}


@dataclass(frozen=True)
class Plain:
    """The result of plain timing."""

    reference_us: float
    """Median µs of one call."""
    candidate_us: float
    ratios: tuple[float, ...]
    """Reference time over candidate time, round by round."""

    @property
    def speedup(self) -> float:
        """Return the median ratio."""
        return median(self.ratios)


def plain(reference: str, candidate: str, *, device: str, rounds: int = ROUNDS) -> Plain:
    """Time `ModelNew` of one source against `Model` of the other, in a process for nothing else.

    Both are whole problem files: they bring `get_inputs` and `get_init_inputs`.
    """
    request = {"reference": reference, "candidate": candidate, "device": device, "rounds": rounds}
    timer = _timer()
    assert timer.stdin is not None
    assert timer.stdout is not None
    timer.stdin.write(json.dumps(request) + "\n")
    timer.stdin.flush()
    line = timer.stdout.readline()
    if not line:
        raise RuntimeError("plain timing failed; its process said why above")
    answer = json.loads(line)
    return Plain(answer["reference_us"], answer["candidate_us"], tuple(answer["ratios"]))


@cache
def _timer() -> subprocess.Popen[str]:
    """Return the process that times; it serves many requests, since importing torch is slow."""
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks.timing.plain"],
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **ENVIRONMENT},
    )


def main() -> None:
    """Serve requests, one a line, until there are no more."""
    import torch

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # as workers are
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    for line in sys.stdin:
        print(json.dumps(_timed(json.loads(line))), flush=True)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # frees memory for the judge


def _timed(request: dict[str, Any]) -> dict[str, object]:
    import torch

    device: str = request["device"]
    reference, draw = _made(request["reference"], "Model", device)
    candidate, _ = _made(request["candidate"], "ModelNew", device)
    if set(candidate.state_dict()) == set(reference.state_dict()):
        candidate.load_state_dict(reference.state_dict())
    first = draw()
    size = sum(tensor.numel() * tensor.element_size() for tensor in first)
    count = max(2, min(MAX_INPUTS, INPUT_BYTES[device] // max(1, size)))
    inputs = [first, *(draw() for _ in range(count - 1))]
    timed = _events if device == "cuda" else _wall
    times: dict[bool, list[float]] = {True: [], False: []}
    with torch.no_grad():
        calls = _calls(timed, reference, inputs)
        timed(candidate, inputs, calls)
        for _ in range(request["rounds"]):
            for is_reference in random.sample([True, False], 2):
                module = reference if is_reference else candidate
                times[is_reference].append(timed(module, inputs, calls))
    return {
        "reference_us": median(times[True]),
        "candidate_us": median(times[False]),
        "ratios": [a / b for a, b in zip(times[True], times[False], strict=True)],
    }


def _made(source: str, entry: str, device: str) -> tuple[Any, Callable[[], list[Any]]]:
    """Return the module, and a function that draws its inputs; a source is a whole problem file."""
    import torch

    namespace = types.ModuleType("plain")
    exec(compile(source, "<source>", "exec"), namespace.__dict__)
    torch.manual_seed(0)
    module = getattr(namespace, entry)(*namespace.get_init_inputs()).to(device)

    def draw() -> list[Any]:
        return [tensor.to(device) for tensor in namespace.get_inputs()]

    return module, draw


def _calls(timed: Callable[..., float], module: Any, inputs: list[Any]) -> int:
    """Return the number of calls that make a round."""
    timed(module, inputs, MIN_CALLS)
    one_us = max(0.1, timed(module, inputs, MIN_CALLS))
    return max(MIN_CALLS, min(20_000, round(ROUND_S * 1e6 / one_us)))


def _wall(module: Any, inputs: list[Any], calls: int) -> float:
    started = time.perf_counter()
    for i in range(calls):
        module(*inputs[i % len(inputs)])
    return (time.perf_counter() - started) * 1e6 / calls


def _events(module: Any, inputs: list[Any], calls: int) -> float:
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for i in range(calls):
        module(*inputs[i % len(inputs)])
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e3 / calls


if __name__ == "__main__":
    main()
