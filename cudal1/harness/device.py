"""Devices: what candidates are judged on, one judge at a time.

Only the CPU is here yet; a GPU is refused with a clear line.
"""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudal1.errors import DeviceError
from cudal1.problem import DeviceClass
from cudal1.record import Record, content_id


class Device(Record):
    """One physical device."""

    device_class: DeviceClass
    kind: str
    """`cpu`, or the GPU's name: verdicts are compared only within one kind."""
    id: str
    """Tells two devices of one kind apart."""
    worker_core: int | None
    """Core that reference and candidate share; None on a machine with a single one."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the device alone: a second judge on this machine is refused, not mixed in.

        Raises:
            DeviceError: another process is judging on it; the message has its process id.
        """
        path = Path(tempfile.gettempdir()) / f"cudal1-device-{self.id}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip() or "unknown"
                raise DeviceError(
                    f"device {self.kind} is in use by process {holder}: wait for it, or stop it"
                ) from error
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)


def find_device(device_class: DeviceClass) -> Device:
    """The machine's device of that class.

    Raises:
        DeviceError: there is none.
    """
    if device_class is DeviceClass.CPU:
        cores = sorted(os.sched_getaffinity(0))
        return Device(
            device_class=DeviceClass.CPU,
            kind="cpu",
            id=content_id(platform.node(), platform.processor(), "cpu"),
            worker_core=cores[-1] if len(cores) > 1 else None,
        )
    import torch

    found = f"{torch.cuda.device_count()} found" if torch.cuda.is_available() else "none found"
    raise DeviceError(
        f"params.yaml asks for device: cuda ({found}), and this version judges on the CPU only: "
        "set device: cpu"
    )
