"""Run the server that is measured: `python -m benchmarks.serving.judge_server FOLDER PORT KIND`.

KIND is `fake`, which judges for real on the fake device, or `instant`, which answers at once, so
that only the server's own time is left. Each verdict that is made is noted in FOLDER/made.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from cudal1.harness.device.device import Device, find_devices
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import assignment
from cudal1.harness.schedule.assignment import Assignment, Refusal
from cudal1.harness.schedule.device_processes import DeviceProcess, processes_found_here
from cudal1.problem import DeviceClass, Problem, Split
from cudal1.protocol import EvalProtocol
from cudal1.serving.bench import Rules
from cudal1.serving.server import Place, serve
from cudal1.settings import protocols
from cudal1.verdict import Status, Verdict

SOURCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(16, 16)]


def get_init_inputs():
    return []
"""
CANDIDATE = """import torch
import torch.nn as nn


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.nn.functional.silu(x)  # {number}
"""
PROBLEM = Problem(
    suite="benchmark",
    level=1,
    number=1,
    name="silu",
    split=Split.TRAIN,
    device_class=DeviceClass.FAKE,
    revision="benchmark",
    source=SOURCE,
)
RULES = Rules(DeviceClass.FAKE, protocols.load("cpu"), 1000.0, 60.0)


class Noting(Executor):
    """A device's process of which each verdict is noted before the server hears of it."""

    def __init__(self, process: Executor, made: Path) -> None:
        self._process = process
        self._made = made

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Pass a question on."""
        asked = self._process.submit(fn, *args)
        if fn is assignment.judge:
            asked.add_done_callback(self._note)
        return asked

    def _note(self, done: Future[Judgement | Refusal]) -> None:
        said = None if done.exception() else done.result()
        if isinstance(said, Judgement):
            line = f"{said.verdict.candidate_id} {said.verdict.protocol_id}\n"
            descriptor = os.open(self._made, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            os.write(descriptor, line.encode())
            os.close(descriptor)


class Instant(Executor):
    """A device that finds every candidate correct at once."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._protocol: EvalProtocol | None = None

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Answer a question."""
        found: Future[Any] = Future()
        if fn is assignment.open_pool:
            self._protocol = args[1]
        found.set_result(self._judgement(args[0]) if fn is assignment.judge else None)
        return found

    def _judgement(self, asked: Assignment) -> Judgement:
        assert self._protocol is not None
        verdict = Verdict(
            problem_id=asked.problem.id,
            candidate_id=asked.candidate.id,
            protocol_id=self._protocol.checks_only().id,
            device_kind=self._device.kind,
            device_id=self._device.id,
            status=Status.CORRECT,
            judged_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            judge_s=0.0,
        )
        return Judgement(verdict, ())


@contextmanager
def instant() -> Iterator[list[DeviceProcess]]:
    """Yield the process of a device that answers at once."""
    device = Device(device_class=DeviceClass.FAKE, kind="instant", id="instant", worker_core=None)
    yield [DeviceProcess(device, Instant(device))]


@contextmanager
def fake(made: Path) -> Iterator[list[DeviceProcess]]:
    """Yield the process of the fake device."""
    with processes_found_here(partial(find_devices, DeviceClass.FAKE)) as found:
        yield [DeviceProcess(each.device, Noting(each.process, made)) for each in found]


def main() -> None:
    """Serve until SIGTERM."""
    folder, port, kind = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    serve(
        Place(folder, folder / "tokens.yaml", "127.0.0.1", port),
        [PROBLEM],
        RULES,
        instant if kind == "instant" else partial(fake, folder / "made"),
        one_team=False,
        version="benchmark",
        announce="",
    )


if __name__ == "__main__":
    main()
