"""Memory that judge and worker share: made by the judge, sent to one worker as a descriptor.

Threat: the worker may write anywhere in it at any time. It holds nothing but what was published to
that worker; originals, answers and captured outputs are elsewhere. On the CPU it is sealed: a
worker that cut it short would have the judge die of SIGBUS.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1.errors import WorkerError
from cudal1.harness.vmm import DeviceMemory

if TYPE_CHECKING:
    import torch

F_SEAL_ALL = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class Ring:
    """The judge's view of a shared piece of memory."""

    memory: torch.Tensor
    """All of it as bytes, on the device."""
    descriptor: int
    """To be sent to the worker, then closed."""
    release: Callable[[], None]
    """Unmaps it here."""

    @property
    def num_bytes(self) -> int:
        """Its size, rounded up to what the device gives."""
        return self.memory.numel()


def sealed(name: str, num_bytes: int) -> tuple[int, mmap.mmap]:
    """An anonymous file whose size nobody can change, and its mapping here."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, num_bytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, F_SEAL_ALL)
    return descriptor, mmap.mmap(descriptor, num_bytes)


def host_ring(num_bytes: int) -> Ring:
    """Shared memory of the CPU."""
    import torch

    descriptor, mapped = sealed("ring", num_bytes)
    # the tensor keeps the mapping, which goes with it
    return Ring(torch.frombuffer(mapped, dtype=torch.uint8), descriptor, lambda: None)


def device_ring(num_bytes: int) -> Ring:
    """Shared memory of the current CUDA device.

    Raises:
        WorkerError: there is not enough.
    """
    import torch

    try:
        memory = DeviceMemory.make(num_bytes)
    except RuntimeError:
        torch.cuda.empty_cache()  # what our own tensors no longer need
        try:
            memory = DeviceMemory.make(num_bytes)
        except RuntimeError as error:
            raise WorkerError(
                f"no {num_bytes >> 20} MiB of device memory for a worker: {error}; "
                "lower protocol.ring_bytes"
            ) from error
    return Ring(memory.tensor(), memory.descriptor(), memory.close)
