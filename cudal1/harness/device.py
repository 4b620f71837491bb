"""Devices: what candidates are judged on, one judge at a time.

Only the CPU is here yet; a GPU is refused with a clear line.
"""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cudal1.errors import DeviceError
from cudal1.problem import DeviceClass
from cudal1.record import Record, content_id

LOOK_S = 0.2
"""Between two tries to lock a device."""


class Device(Record):
    """One physical device."""

    device_class: DeviceClass
    kind: str
    """`cpu`, `fake`, or the GPU's name: verdicts are compared only within one kind."""
    id: str
    """Tells two devices of one kind apart."""
    worker_core: int | None
    """Core that reference and candidate share; None on a machine with a single one."""

    @contextmanager
    def locked(self, *, wait_s: float = 0.0) -> Iterator[None]:
        """Hold the device alone: a second judge on this machine waits or is refused, not mixed in.

        Raises:
            DeviceError: another process is still judging on it; the message has its process id.
        """
        path = Path(tempfile.gettempdir()) / f"cudal1-device-{self.id}.lock"
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise DeviceError(
                f"cannot lock device {self.kind} with {path}: {error.strerror}; remove the file"
            ) from error
        try:
            deadline = time.monotonic() + wait_s
            while not _locks(descriptor):
                if time.monotonic() >= deadline:
                    said = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                    raise DeviceError(
                        f"device {self.kind} is in use by process {said or 'unknown'}: "
                        "wait for it, or stop it"
                    )
                time.sleep(LOOK_S)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(descriptor)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def find_device(device_class: DeviceClass) -> Device:
    """The machine's device of that class.

    Raises:
        DeviceError: there is none.
    """
    if device_class is not DeviceClass.CUDA:
        cores = sorted(os.sched_getaffinity(0))
        return Device(
            device_class=device_class,
            kind=device_class.value,
            id=content_id(platform.node(), platform.processor(), device_class.value),
            worker_core=cores[-1] if len(cores) > 1 else None,
        )
    import torch

    found = f"{torch.cuda.device_count()} found" if torch.cuda.is_available() else "none found"
    raise DeviceError(
        f"params.yaml asks for device: cuda ({found}), and this version judges on the CPU only: "
        "set device: cpu"
    )
