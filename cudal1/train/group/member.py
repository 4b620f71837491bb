"""Run one process of a training group (`cudal1.train.group.group`).

    python -m cudal1.train.group.member JOB

Exit codes: 0 done, 2 one of our own failures, which the stage has been told.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from cudal1.errors import CudaL1Error
from cudal1.train.group.group import CALLED_BACK, Job
from cudal1.train.group.shared import Shared
from cudal1.train.group.wire import Wire


class Far:
    """An object of the stage that is called over the wire, method by method."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire = wire
        self._name = name

    def __call__(self, *arguments: Any) -> Any:
        """Call the stage's object, where it is a function."""
        return self._ask("__call__", arguments)

    def __getattr__(self, method: str) -> Any:
        return lambda *arguments: self._ask(method, arguments)

    def _ask(self, method: str, arguments: tuple[Any, ...]) -> Any:
        self._wire.send(("call", self._name, method, arguments))
        return self._wire.receive()


def main() -> None:
    """Train as the job's file says; the first process speaks for all."""
    job: Job = pickle.loads(Path(sys.argv[1]).read_bytes())
    wire = Wire.to(job.address) if int(os.environ.get("RANK", "0")) == 0 else None
    _load_on_any_cpu()
    train = getattr(import_module(job.module), job.function)
    try:
        result = train(**job.arguments, **_called_back(train, wire, job))
    except CudaL1Error as error:
        if wire is not None:
            wire.send(("failed", str(error)))
        sys.exit(2)
    if wire is not None:
        wire.send(("done", result))
    _leave()


def _called_back(train: Any, wire: Wire | None, job: Job) -> dict[str, Any]:
    """Return the function's callbacks, which the stage holds."""
    names = [name for name in CALLED_BACK if name in train.__wrapped__.__annotations__]
    far: dict[str, Any] = {name: None if wire is None else Far(wire, name) for name in names}
    if "environment" in far:
        far["environment"] = Shared(far["environment"], judges_meanwhile=job.judges_meanwhile)
    if far["on_log"] is None:
        far["on_log"] = _hear_nothing
    return far


def _hear_nothing(step: int, values: Mapping[str, float]) -> None:
    """Ignore the numbers of a process that does not speak to the stage."""


def _load_on_any_cpu() -> None:
    """Let a checkpoint be loaded on `cpu:1`, the device name of a second process on a CPU.

    transformers asks for the device by that name; PyTorch knows `cpu` alone.
    """
    from torch.serialization import register_package

    register_package(
        0,
        lambda storage: None,
        lambda storage, location: storage if location.startswith("cpu:") else None,
    )


def _leave() -> None:
    import torch.distributed

    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
