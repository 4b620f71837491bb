"""A deliberately naive harness, as public ones were: what it accepts shows that a cheat works.

Reference and candidate share a process and a namespace; one input serves the check and every timed
call; the clock can be reached; whoever prints the first line of JSON has reported. Run as a
program, it reads cases from standard input and tries each in a fork of its own.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from pathlib import Path

import torch

NUM_CALLS = 100
TOLERANCE = 0.1
LIMIT_S = 20


def judge(
    reference_source: str, candidate_source: str, *, reference_first: bool
) -> dict[str, object]:
    shared: dict[str, object] = {"__name__": "shared"}
    exec(reference_source, shared)
    torch.manual_seed(42)
    inputs = shared["get_inputs"]()
    arguments = shared["get_init_inputs"]()
    torch.manual_seed(42)
    reference = shared["Model"](*arguments)
    before = timed(reference, inputs)
    exec(candidate_source, shared)
    torch.manual_seed(42)
    candidate = shared["ModelNew"](*arguments)
    expected = reference(*inputs) if reference_first else None
    output = candidate(*inputs)
    candidate_s = timed(candidate, inputs)
    reference_s = (before + timed(reference, inputs)) / 2
    expected = reference(*inputs) if expected is None else expected
    too_far = (output - expected).abs() > TOLERANCE + TOLERANCE * expected.abs()
    status = "incorrect" if bool(too_far.any()) else "correct"
    return {"status": status, "speedup": reference_s / max(candidate_s, 1e-9)}


def timed(model: torch.nn.Module, inputs: list[torch.Tensor]) -> float:
    model(*inputs)
    started = time.perf_counter()
    for _ in range(NUM_CALLS):
        model(*inputs)
    return time.perf_counter() - started


def in_a_fork(case: dict[str, str], *, reference_first: bool) -> dict[str, object]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # a candidate may write to all it finds
            os.dup2(nowhere, stream)
        try:
            with torch.no_grad():
                found = judge(case["reference"], case["candidate"], reference_first=reference_first)
            os.write(writing, json.dumps(found).encode() + b"\n")
        finally:
            os._exit(0)
    os.close(writing)
    said = b""
    while select.select([reading], [], [], LIMIT_S)[0] and (some := os.read(reading, 4096)):
        said += some
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return json.loads(said.split(b"\n")[0] or b'{"status": "silent", "speedup": 0.0}')


def main() -> None:
    torch.set_num_threads(1)
    results = {}
    for case in json.load(sys.stdin):
        tries = [in_a_fork(case, reference_first=first) for first in (True, False)]
        results[Path(case["name"]).stem] = tries
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
