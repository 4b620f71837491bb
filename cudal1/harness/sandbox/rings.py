"""Make memory that judge and worker share, and that a worker gets as a descriptor.

Threat: the worker may write anywhere in a ring at any time. A ring holds nothing but what was
published to that worker; originals, answers and captured outputs are elsewhere. On the CPU a ring
is sealed: a worker that cut it short would have the judge die of SIGBUS.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cudal1.errors import WorkerError
from cudal1.harness.shared.vmm import DeviceMemory

if TYPE_CHECKING:
    import torch

F_SEAL_ALL = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


@dataclass(frozen=True)
class Ring:
    """The judge's view of a shared piece of memory."""

    memory: torch.Tensor
    """The whole memory as bytes, on the device."""
    descriptor: int
    """Descriptor to be sent to the worker, then closed."""
    release: Callable[[], None]
    """Function to be called once, when the ring's worker has ended."""

    @property
    def num_bytes(self) -> int:
        """The ring's size in bytes, rounded up to the device's granularity."""
        return self.memory.numel()


def sealed(name: str, num_bytes: int) -> tuple[int, mmap.mmap]:
    """Return an anonymous file of a fixed size, and its mapping here."""
    descriptor = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, num_bytes)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, F_SEAL_ALL)
    return descriptor, mmap.mmap(descriptor, num_bytes)


def host_ring(num_bytes: int) -> Ring:
    """Return shared memory of the CPU."""
    import torch

    descriptor, mapped = sealed("ring", num_bytes)
    # the tensor keeps the mapping alive, and the mapping ends with the tensor
    return Ring(torch.frombuffer(mapped, dtype=torch.uint8), descriptor, lambda: None)


MAX_FREE, MAX_FREE_BYTES = 2, 8 << 30
"""Number of free pieces that are kept, and their bytes: candidates want the device's memory, too,
and so do answers in float64."""


class DeviceRings:
    """Shared memory of the current CUDA device in pieces of one size, lent to workers in turn.

    Making and mapping a piece of gigabytes takes 20 ms, unmapping it takes 30 ms. Threat: a worker
    must find nothing of the piece's earlier worker. That worker must have ended before its piece
    comes back.
    """

    def __init__(self, num_bytes: int) -> None:
        self._num_bytes = num_bytes
        self._free: list[DeviceMemory] = []
        self._is_open = True

    def lend(self) -> Ring:
        """Return a piece that is all zeros; it comes back when it is released.

        Raises:
            WorkerError: there is not enough memory.
        """
        import torch

        memory = self._free.pop() if self._free else self._made()
        try:
            view = memory.tensor()
            view.view(torch.int64).zero_()  # as bytes it would take longer
            return Ring(view, memory.descriptor(), lambda: self._take_back(memory))
        except RuntimeError:
            memory.close()
            raise

    def close(self) -> None:
        """Free the pieces that are here; free those still lent as soon as they come back."""
        self._is_open = False
        while self._free:
            self._free.pop().close()

    def _take_back(self, memory: DeviceMemory) -> None:
        most = min(MAX_FREE, MAX_FREE_BYTES // self._num_bytes)
        if self._is_open and len(self._free) < most:
            self._free.append(memory)
        else:
            memory.close()

    def _made(self) -> DeviceMemory:
        import torch

        try:
            return DeviceMemory.make(self._num_bytes)
        except RuntimeError:
            torch.cuda.empty_cache()  # frees memory that our own tensors have given up
        try:
            return DeviceMemory.make(self._num_bytes)
        except RuntimeError as error:
            raise WorkerError(
                f"no {self._num_bytes >> 20} MiB of device memory for a worker: {error}; "
                "lower protocol.ring_bytes"
            ) from error
