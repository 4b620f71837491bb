"""What the worker's loop needs of a device: its memory, its waiting, and handing outputs over.

Threat: as in `shim`: all of this runs beside the candidate and may be patched by it. On a GPU the
judge's clock stops when the judge's own context has the device, so that work on any stream is in
the interval or missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch

from cudal1.harness.vmm import DeviceMemory, bytes_at, cuda_driver
from cudal1.harness.wire import IN_RING, Job
from cudal1.harness.worker import fake

WARM_SIZE = 64
ALIGNMENT = 512
"""Of allocations: what CUDA's own give at least."""
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""Tensors that are what lies in their memory; other classes may be anything."""


class Engine(Protocol):
    """One device, seen from inside a worker."""

    def share(self, descriptor: int, job: Job) -> torch.Tensor:
        """The memory shared with the judge, as bytes."""
        ...

    def part(self, start: int, num_bytes: int) -> torch.Tensor:
        """Return bytes of the shared memory as a storage of their own, as any tensor has one."""
        ...

    def place(self, module: Any) -> Any:
        """The candidate's module, on the device."""
        ...

    def calling(self) -> AbstractContextManager[None]:
        """What surrounds the calls."""
        ...

    def release(self) -> None:
        """The judge holds all that was handed over before."""
        ...

    def begin(self) -> None:
        """New inputs are there."""
        ...

    def store(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Hand an output over; returns where the judge finds it, or 0: in its slot."""
        ...

    def copy(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Copy an output to its slot, whatever becomes of it; returns as `store` does."""
        ...

    def finish(self) -> None:
        """Wait until everything is done."""
        ...

    def forget(self) -> None:
        """Give back memory that no tensor uses."""
        ...


class HostEngine:
    """The CPU."""

    def __init__(self) -> None:
        self._in_place = False
        self._ring = self._ring_end = 0
        self._kept: list[torch.Tensor] = []

    def share(self, descriptor: int, job: Job) -> torch.Tensor:
        """A mapping of the judge's anonymous file."""
        self._in_place = job.in_place
        ring = torch.frombuffer(mmap.mmap(descriptor, job.ring_bytes), dtype=torch.uint8)
        self._ring, self._ring_end = ring.data_ptr(), ring.data_ptr() + job.ring_bytes
        self._bytes = ring.numpy()
        return ring

    def part(self, start: int, num_bytes: int) -> torch.Tensor:
        """A tensor over the mapping."""
        return torch.from_numpy(self._bytes[start : start + num_bytes])

    def place(self, module: Any) -> Any:
        """As it is."""
        return module

    def calling(self) -> AbstractContextManager[None]:
        """Nothing."""
        return contextlib.nullcontext()

    def release(self) -> None:
        """The memory of earlier outputs may be used again."""
        self._kept.clear()

    def begin(self) -> None:
        """Nothing."""

    def store(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Where it lies, kept until the judge holds it; nobody pays, or saves, a copy.

        What is lazy, expanded or strided is first written out, and paid for here.
        """
        if not self._in_place:
            slot.copy_(value)
            return 0
        if type(value) not in PLAIN or value.layout is not torch.strided or not value.is_cpu:
            slot.copy_(value)
            value = slot
        elif value.is_neg() or not value.is_contiguous():
            value = value.resolve_neg().contiguous()
        self._kept.append(value)
        place = value.data_ptr()
        return place if not self._ring <= place < self._ring_end else place - self._ring + IN_RING

    def copy(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """To the slot, which lies in the ring."""
        slot.copy_(value)
        return slot.data_ptr() - self._ring + IN_RING if self._in_place else 0

    def finish(self) -> None:
        """Calls on a CPU have ended when they return."""

    def forget(self) -> None:
        """Nothing."""


class CudaEngine:
    """A GPU, the only one that this process sees."""

    def __init__(self) -> None:
        """Make the context and what every first call would make; costs a third of a second."""
        ones = torch.ones(WARM_SIZE, WARM_SIZE, device="cuda")
        torch.mm(ones, ones)
        torch.cuda.synchronize()
        self._base = self._arena = self._next = self._end = 0
        self._pool: Any = None
        self._touched = torch.zeros(1, device="cuda")

    def share(self, descriptor: int, job: Job) -> torch.Tensor:
        """The judge's memory; what lies behind the slots feeds the calls' own allocations."""
        memory = DeviceMemory.received(descriptor, job.ring_bytes)
        self._base, self._end = memory.address, memory.address + job.ring_bytes
        start = memory.address + job.layout.total_bytes
        self._arena = self._next = -(-start // ALIGNMENT) * ALIGNMENT
        return memory.tensor()

    def part(self, start: int, num_bytes: int) -> torch.Tensor:
        """A tensor over the judge's memory."""
        return bytes_at(self._base + start, num_bytes)

    def place(self, module: Any) -> Any:
        """Moved there as anyone would."""
        return module.to("cuda")

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Have this thread's allocations come from the arena.

        Outputs are then born where the judge can read them: nobody pays, or saves, a copy.
        """
        take, give = _TAKE(self._take), _GIVE(self._give)
        # what `torch.cuda.memory.CUDAPluggableAllocator` does with functions of a library
        allocator = torch._C._cuda_customAllocator(_address(take), _address(give))
        self._pool = (torch.cuda.MemPool(allocator), allocator, take, give)
        with torch.cuda.use_mem_pool(self._pool[0]):
            yield

    def release(self) -> None:
        """Nothing: the arena's memory is used again as its tensors end."""

    def begin(self) -> None:
        """Have the device turn to this process, which takes it 0.15 ms, while the host goes on.

        Else a module whose first kernel is launched a little later would pay for it.
        """
        self._touched.add_(1)

    def store(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Where it lies, if that is in the arena and in order; else a copy in the slot."""
        start = value.data_ptr()
        if self._arena <= start < self._end and value.is_contiguous():
            return start - self._base
        slot.copy_(value)
        return 0

    def copy(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Behind the call, on the stream that it was called on."""
        slot.copy_(value)
        return 0

    def finish(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize()

    def forget(self) -> None:
        """The caching allocator's."""
        torch.cuda.empty_cache()

    def _take(self, size: int, device: int, stream: int | None) -> int:
        start = self._next
        if start + size <= self._end:
            self._next += size
            return start
        error, pointer = cuda_driver().cuMemAlloc(size)  # outside: such an output is copied
        return 0 if int(error) else int(pointer)

    def _give(self, pointer: int | None, size: int, device: int, stream: int | None) -> None:
        if pointer is None:
            return
        if pointer + size == self._next:
            self._next = pointer
        elif not self._arena <= pointer < self._end:
            cuda_driver().cuMemFree(pointer)


_TAKE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)
_GIVE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p)


class FakeEngine(HostEngine):
    """The pretended asynchronous device: what is stored passes through its default stream.

    So outputs go to their slots: that copy is what waits for the work before it.
    """

    def __init__(self) -> None:
        """Have it work while its caller goes on."""
        super().__init__()
        fake.start()

    def store(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Enqueued, as a copy on a GPU is."""
        fake.copy(slot, value)
        return 0

    copy = store

    def finish(self) -> None:
        """Wait for the default stream; the judge takes what is there then."""
        fake.default_stream.synchronize()


def _address(function: Any) -> int:
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def make_engine(device: str) -> Engine:
    """The engine of a device class."""
    engines: dict[str, Callable[[], Engine]] = {
        "cpu": HostEngine, "cuda": CudaEngine, "fake": FakeEngine,
    }  # fmt: skip
    return engines[device]()


def open_descriptors() -> set[int]:
    """Numbers of what this process has open."""
    found = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return {number for number in found if _is_open(number)}  # without the folder's own


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
