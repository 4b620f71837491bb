"""Give the worker's loop what it needs of a device: memory, waiting, and handing outputs over.

Threat: as in `shim`: all of this runs beside the candidate, which may patch it. On a GPU the
judge's clock stops when the judge's own context has the device. So work on any stream is either in
the interval or missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import torch

from cudal1.harness.shared.vmm import DeviceMemory, bytes_at, cuda_driver
from cudal1.harness.shared.wire import IN_RING, Job
from cudal1.harness.worker import fake

WARM_SIZE, WARM_CHANNELS = 64, 24
NAP_S, DOUBLINGS = 20e-6, 6
"""Seconds of the first nap while an input is awaited, and how often each nap is twice as long."""
ALIGNMENT = 512
"""Alignment of allocations in bytes, the least that CUDA's own have."""
PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""Classes of tensors that are what lies in their memory; other classes may be anything."""


class Engine(Protocol):
    """One device, seen from inside a worker."""

    def convolve(self) -> None:
        """Load what every first convolution would load."""
        ...

    def share(self, descriptor: int, job: Job) -> torch.Tensor:
        """Return the memory shared with the judge, as bytes."""
        ...

    def part(self, start: int, num_bytes: int) -> torch.Tensor:
        """Return bytes of the shared memory as a tensor with a storage of its own."""
        ...

    def place(self, module: Any) -> Any:
        """Return the candidate's module, on the device."""
        ...

    def calling(self) -> AbstractContextManager[None]:
        """Return the context that surrounds the calls."""
        ...

    def release(self) -> None:
        """Note that the judge holds all outputs that were handed over before."""
        ...

    def rest(self, times: int) -> None:
        """Pause: inputs have not come for a while, in which there were so many pauses."""
        ...

    def begin(self) -> None:
        """Prepare for calls: new inputs are there."""
        ...

    def store(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Hand an output over; return where the judge finds it, or 0 for its slot."""
        ...

    def copy(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Copy an output to its slot in any case; return its place as `store` does."""
        ...

    def finish(self) -> None:
        """Wait until all work is done."""
        ...

    def forget(self) -> None:
        """Give back memory that no tensor uses."""
        ...


class HostEngine:
    """An engine for the CPU."""

    def __init__(self) -> None:
        self._in_place = False
        self._ring = self._ring_end = 0
        self._kept: list[torch.Tensor] = []

    def convolve(self) -> None:
        """Do nothing: a CPU's first convolution loads nothing."""

    def share(self, descriptor: int, job: Job) -> torch.Tensor:
        """Map the judge's anonymous file and return the mapping."""
        self._in_place = job.in_place
        ring = torch.frombuffer(mmap.mmap(descriptor, job.ring_bytes), dtype=torch.uint8)
        self._ring, self._ring_end = ring.data_ptr(), ring.data_ptr() + job.ring_bytes
        self._bytes = ring.numpy()
        return ring

    def part(self, start: int, num_bytes: int) -> torch.Tensor:
        """Return a tensor over the mapping."""
        return torch.from_numpy(self._bytes[start : start + num_bytes])

    def place(self, module: Any) -> Any:
        """Return the module unchanged."""
        return module

    def calling(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return contextlib.nullcontext()

    def release(self) -> None:
        """Drop the outputs of earlier calls: their memory may be used again."""
        self._kept.clear()

    def rest(self, times: int) -> None:
        """Leave the core to other processes: looking for inputs is computing, which counts.

        A judge without a core may be away for milliseconds. As many short naps as fit into them
        would count for half a millisecond.
        """
        time.sleep(NAP_S * 2 ** min(times, DOUBLINGS))

    def begin(self) -> None:
        """Do nothing."""

    def store(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Return where the output lies, and keep the output until the judge holds it.

        No copy is paid for, and none is saved. A lazy, expanded or strided output is first written
        out, and paid for here. Without `in_place` the output is copied to its slot.
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
        """Copy the output to its slot, which lies in the ring."""
        slot.copy_(value)
        return slot.data_ptr() - self._ring + IN_RING if self._in_place else 0

    def finish(self) -> None:
        """Do nothing: calls on a CPU have ended when they return."""

    def forget(self) -> None:
        """Do nothing."""


class CudaEngine:
    """An engine for a GPU, the only one that this process sees."""

    def __init__(self) -> None:
        """Make the context and what every first call would make; this takes a third of a second."""
        ones = torch.ones(WARM_SIZE, WARM_SIZE, device="cuda")
        torch.mm(ones, ones)
        torch.cuda.synchronize()
        self._base = self._arena = self._next = self._end = 0
        self._pool: Any = None
        self._touched = torch.zeros(1, device="cuda")

    def convolve(self) -> None:
        """Load cuDNN, which takes a second, by a convolution of an odd shape.

        cuDNN remembers for good what it chose for a shape.
        """
        with contextlib.suppress(RuntimeError), torch.no_grad():  # no memory: the first call loads
            images = torch.ones(1, WARM_CHANNELS, WARM_SIZE, WARM_SIZE, device="cuda")
            kernels = torch.ones(WARM_CHANNELS, WARM_CHANNELS, 3, 3, device="cuda")
            torch.nn.functional.conv2d(images, kernels)
            torch.cuda.synchronize()

    def share(self, descriptor: int, job: Job) -> torch.Tensor:
        """Map the judge's memory and return it; bytes behind the slots feed calls' allocations."""
        memory = DeviceMemory.received(descriptor, job.ring_bytes)
        self._base, self._end = memory.address, memory.address + job.ring_bytes
        start = memory.address + job.layout.total_bytes
        self._arena = self._next = -(-start // ALIGNMENT) * ALIGNMENT
        return memory.tensor()

    def part(self, start: int, num_bytes: int) -> torch.Tensor:
        """Return a tensor over the judge's memory."""
        return bytes_at(self._base + start, num_bytes)

    def place(self, module: Any) -> Any:
        """Move the module to the GPU as any caller would."""
        return module.to("cuda")

    @contextlib.contextmanager
    def calling(self) -> Iterator[None]:
        """Take this thread's allocations from the arena.

        Outputs then lie where the judge can read them. No copy is paid for, and none is saved.
        """
        take, give = _TAKE(self._take), _GIVE(self._give)
        # what `torch.cuda.memory.CUDAPluggableAllocator` does with functions of a library
        allocator = torch._C._cuda_customAllocator(_address(take), _address(give))
        self._pool = (torch.cuda.MemPool(allocator), allocator, take, give)
        with torch.cuda.use_mem_pool(self._pool[0]):
            yield

    def release(self) -> None:
        """Do nothing: the arena's memory is used again as its tensors end."""

    def rest(self, times: int) -> None:
        """Yield the core but look on: the judge copies inputs, and no call may begin late."""
        os.sched_yield()

    def begin(self) -> None:
        """Turn the device to this process, which takes the device 0.15 ms, while the host goes on.

        Otherwise a module that launches its first kernel a little later would pay for the turn.
        """
        self._touched.add_(1)

    def store(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Return the output's place, if it is contiguous in the arena; else copy it to its slot."""
        start = value.data_ptr()
        if self._arena <= start < self._end and value.is_contiguous():
            return start - self._base
        slot.copy_(value)
        return 0

    def copy(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Copy the output to its slot behind the call, on the call's stream."""
        slot.copy_(value)
        return 0

    def finish(self) -> None:
        """Wait for all streams."""
        torch.cuda.synchronize()

    def forget(self) -> None:
        """Empty the caching allocator."""
        torch.cuda.empty_cache()

    def _take(self, size: int, device: int, stream: int | None) -> int:
        start = self._next
        if start + size <= self._end:
            self._next += size
            return start
        error, pointer = cuda_driver().cuMemAlloc(size)  # such an output is copied
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
    """An engine for the fake device, which sends outputs through its default stream.

    Outputs therefore go to their slots: the copy to a slot waits for the work before it.
    """

    def __init__(self) -> None:
        """Start the fake device, so that it works while its caller goes on."""
        super().__init__()
        fake.start()

    def store(self, value: torch.Tensor, slot: torch.Tensor) -> int:
        """Enqueue a copy of the output to its slot, as a copy on a GPU is enqueued."""
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
    """Return the engine of a device class."""
    engines: dict[str, Callable[[], Engine]] = {
        "cpu": HostEngine,
        "cuda": CudaEngine,
        "fake": FakeEngine,
    }
    return engines[device]()


def open_descriptors() -> set[int]:
    """Return the numbers of the descriptors that this process has open."""
    found = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return {number for number in found if _is_open(number)}  # not the listing's own


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True
