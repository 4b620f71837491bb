"""Run a server with a played device: `python -m tests.serving.played FOLDER PORT DELAY_S`.

A played device finds every candidate four times as fast, or wrong where its source says so. It
appends the id of each candidate that it judges to `FOLDER/judged`. All else is the real server.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cudal1.errors import DeviceError, WorkerError
from cudal1.harness.device.device import Device
from cudal1.harness.judgement import Judgement
from cudal1.harness.schedule import assignment
from cudal1.harness.schedule.assignment import Assignment, Refusal
from cudal1.harness.schedule.device_processes import DeviceProcess
from cudal1.problem import DeviceClass, Problem
from cudal1.protocol import EvalProtocol
from cudal1.serving.bench import Rules
from cudal1.serving.server import Place, serve
from cudal1.settings import protocols
from tests.tasks.played import judged, toys

DEVICE = Device(device_class=DeviceClass.CPU, kind="played", id="played", worker_core=None)
PROBLEMS = toys("rows", "columns")
RULES = Rules(DeviceClass.CPU, protocols.load("cpu"), 1000.0, 60.0)


class PlayedDevice(Executor):
    """A stand-in for the process of a device."""

    def __init__(self, *, delay_s: float = 0.0, noted: Path | None = None) -> None:
        self.asked: list[str] = []
        """The candidates that were judged, by id."""
        self.num_opened = 0
        self.failures: list[Exception] = []
        """Errors that the next questions raise."""
        self._delay_s = delay_s
        self._noted = noted
        self._protocol: EvalProtocol | None = None
        self._thread = ThreadPoolExecutor(1)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_: Any) -> Future[Any]:
        """Answer what a fleet asks."""
        if fn is assignment.open_pool:
            return self._thread.submit(self._open, args[1])
        if fn is assignment.judge:
            return self._thread.submit(self._judge, args[0])
        return self._thread.submit(lambda: None)

    def _open(self, protocol: EvalProtocol) -> None:
        if self.failures and isinstance(self.failures[0], DeviceError):
            raise self.failures.pop(0)
        self.num_opened += 1
        self._protocol = protocol

    def _judge(self, asked: Assignment) -> Judgement | Refusal:
        time.sleep(self._delay_s)
        if self.failures:
            raise self.failures.pop(0)
        if "deadly" in asked.candidate.source:
            raise WorkerError("died")
        if "refuse" in asked.candidate.source:
            return Refusal(asked.problem.id, asked.candidate.id, f"{asked.problem.key}: too large")
        assert self._protocol is not None
        protocol = self._protocol if asked.timing else self._protocol.checks_only()
        self.asked.append(asked.candidate.id)
        if self._noted is not None:
            with self._noted.open("a") as file:
                file.write(f"{asked.candidate.id} {protocol.id}\n")
        found = judged(asked.candidate, protocol, DEVICE.kind)
        changes: dict[str, Any] = {"judge_s": self._delay_s, "device_id": DEVICE.id}
        if not asked.timing:
            changes["measurement"] = None
        return Judgement(found.verdict.model_copy(update=changes), ())


@contextmanager
def played(device: PlayedDevice) -> Iterator[list[DeviceProcess]]:
    yield [DeviceProcess(DEVICE, device)]


def main() -> None:
    folder, port, delay_s = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    serve(
        Place(folder, folder / "tokens.yaml", "127.0.0.1", port),
        PROBLEMS,
        RULES,
        lambda: played(PlayedDevice(delay_s=delay_s, noted=folder / "judged")),
        one_team="--one-team" in sys.argv,
        version="test",
        announce="",
    )


__all__ = ["DEVICE", "PROBLEMS", "RULES", "PlayedDevice", "Problem", "WorkerError", "played"]

if __name__ == "__main__":
    main()
