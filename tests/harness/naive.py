"""A deliberately naive harness, like public ones: if it accepts a cheat, the cheat works.

Reference and candidate share a process, a namespace and a device. One input serves the check and
every timed call. The clock can be reached. The first line of JSON that is written counts as the
report, whatever code wrote it. On the fake device the clock is a pair of events on the default
stream. Run as a program, it reads cases from standard input and tries each in a fork of its own.

A case may ask for a variant that public harnesses had, too: `batch` times eight inputs in turn,
`last` checks the last timed output, `signed` believes only results that are signed with its key.
"""

from __future__ import annotations

import hmac
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

import torch

from cudal1.harness.worker import fake

NUM_CALLS = {"cpu": 100, "fake": 10}
LARGE, NUM_LARGE_CALLS = 1 << 18, 20
"""Number of elements of an input above which calls are slow, and the number of timed calls there.
"""
BATCH = 8
TOLERANCE = 0.1
LIMIT_S = 120


def judge(case: dict[str, str], *, reference_first: bool) -> dict[str, object]:
    shared: dict[str, object] = {"__name__": "shared"}
    if case["device"] == "fake":
        fake.start()
    exec(case["reference"], shared)
    torch.manual_seed(42)
    inputs = [shared["get_inputs"]() for _ in range(BATCH if "batch" in case["modes"] else 1)]
    arguments = shared["get_init_inputs"]()
    torch.manual_seed(42)
    reference = shared["Model"](*arguments)
    before, _ = timed(reference, inputs, case["device"])
    exec(case["candidate"], shared)
    torch.manual_seed(42)
    candidate = shared["ModelNew"](*arguments)
    expected = first(reference(*inputs[0])) if reference_first else None
    output = first(candidate(*inputs[0]))
    candidate_s, last = timed(candidate, inputs, case["device"])
    reference_s = (before + timed(reference, inputs, case["device"])[0]) / 2
    expected = first(reference(*inputs[0])) if expected is None else expected
    fake.synchronize()
    checked = last if "last" in case["modes"] else output
    too_far = (checked - expected).abs() > TOLERANCE + TOLERANCE * expected.abs()
    status = "incorrect" if bool(too_far.any()) else "correct"
    return {"status": status, "speedup": reference_s / max(candidate_s, 1e-9)}


def timed(
    model: torch.nn.Module, inputs: list[list[torch.Tensor]], device: str
) -> tuple[float, torch.Tensor]:
    count = NUM_LARGE_CALLS if inputs[0][0].numel() > LARGE else NUM_CALLS[device]
    output = model(*inputs[0])
    if device == "fake":
        start, end = fake.Event(), fake.Event()
        start.record()
        for slot in range(count):
            output = model(*inputs[slot % len(inputs)])
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / 1000, first(output)
    started = time.perf_counter()
    for slot in range(count):
        output = model(*inputs[slot % len(inputs)])
    return time.perf_counter() - started, first(output)


def first(output: object) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def report(case: dict[str, str], writing: int, key: bytes, *, reference_first: bool) -> None:
    found = judge(case, reference_first=reference_first)
    line = json.dumps(found).encode()
    os.write(writing, line + b" " + hmac.new(key, line, "sha256").hexdigest().encode() + b"\n")


def in_a_fork(case: dict[str, str], *, reference_first: bool) -> dict[str, object]:
    reading, writing = os.pipe()
    key = os.urandom(16)
    child = os.fork()
    if child == 0:
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):  # a candidate may write to every descriptor that it finds
            os.dup2(nowhere, stream)
        try:
            with torch.no_grad():
                report(case, writing, key, reference_first=reference_first)
        finally:
            os._exit(0)
    os.close(writing)
    said = b""
    while b"\n" not in said and select.select([reading], [], [], LIMIT_S)[0]:
        if not (some := os.read(reading, 4096)):
            break
        said += some
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    line = said.split(b"\n")[0]
    content, _, signature = line.rpartition(b"} ")
    if "signed" in case["modes"]:
        expected = hmac.new(key, content + b"}", "sha256").hexdigest().encode()
        if signature != expected:
            return {"status": "unsigned", "speedup": 0.0}
    return json.loads(
        content + b"}" if content else line or b'{"status": "silent", "speedup": 0.0}'
    )


def main() -> None:
    torch.set_num_threads(1)
    results = {}
    for case in json.load(sys.stdin):
        tries = [in_a_fork(case, reference_first=first) for first in (True, False)]
        results[Path(case["name"]).stem] = tries
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
