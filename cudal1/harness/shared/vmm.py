"""Share device memory between two processes: made by the judge, mapped by one worker.

A piece of memory is a descriptor, as a memfd is on the CPU. It works across namespaces, is closed
like any other, and reaches nothing but its own bytes. Threat: CUDA's older handles (`cudaIpc`)
share whole allocations of a caching allocator, with whatever else lies in them.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import torch


def cuda_driver() -> Any:
    """Return NVIDIA's bindings of the driver, which PyTorch's CUDA builds bring; without types."""
    return importlib.import_module("cuda.bindings.driver")


class DeviceMemory:
    """Bytes on the current CUDA device, mapped into this process.

    Raises:
        RuntimeError: the driver refused; its error's name is in the text.
    """

    def __init__(self, handle: Any, num_bytes: int) -> None:
        driver = cuda_driver()
        self._driver = driver
        self._handle = handle
        self._exported = -1
        self.num_bytes = num_bytes
        self.address = int(_taken(driver.cuMemAddressReserve(num_bytes, 0, 0, 0)))
        _taken(driver.cuMemMap(self.address, num_bytes, 0, handle, 0))
        access = driver.CUmemAccessDesc()
        access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = _ordinal()
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        _taken(driver.cuMemSetAccess(self.address, num_bytes, [access], 1))

    @classmethod
    def make(cls, num_bytes: int) -> Self:
        """Return new memory of at least so many bytes; the driver has cleared it."""
        driver = cuda_driver()
        wanted = driver.CUmemAllocationProp()
        wanted.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.requestedHandleTypes = _descriptor_type()
        wanted.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = _ordinal()
        least = driver.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
        step = int(_taken(driver.cuMemGetAllocationGranularity(wanted, least)))
        size = -(-num_bytes // step) * step
        return cls(_taken(driver.cuMemCreate(size, wanted, 0)), size)

    @classmethod
    def received(cls, descriptor: int, num_bytes: int) -> Self:
        """Return the memory behind a descriptor, `num_bytes` in all; close the descriptor."""
        driver = cuda_driver()
        handle = _taken(driver.cuMemImportFromShareableHandle(descriptor, _descriptor_type()))
        os.close(descriptor)
        return cls(handle, num_bytes)

    def descriptor(self) -> int:
        """Return a new descriptor of the memory, to be sent and closed.

        The driver takes 20 ms for the first descriptor.
        """
        if self._exported < 0:
            kind = _descriptor_type()
            exported = self._driver.cuMemExportToShareableHandle(self._handle, kind, 0)
            self._exported = int(_taken(exported))
        return os.dup(self._exported)

    def tensor(self) -> torch.Tensor:
        """Return the whole memory as bytes."""
        return bytes_at(self.address, self.num_bytes)

    def close(self) -> None:
        """Unmap the memory; its bytes are freed once no process maps them. Idempotent."""
        if not self.address:
            return
        _taken(self._driver.cuMemUnmap(self.address, self.num_bytes))
        _taken(self._driver.cuMemAddressFree(self.address, self.num_bytes))
        _taken(self._driver.cuMemRelease(self._handle))
        if self._exported >= 0:
            os.close(self._exported)
        self.address = 0


def bytes_at(address: int, num_bytes: int) -> torch.Tensor:
    """Return mapped memory of the current CUDA device as bytes, a storage of its own."""
    import torch

    if not num_bytes:
        return torch.empty(0, dtype=torch.uint8, device="cuda")
    return torch.as_tensor(_Bytes(address, num_bytes), device="cuda")


class _Bytes:
    """The interface through which torch sees memory as a tensor without copying it."""

    def __init__(self, address: int, num_bytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (num_bytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


def _ordinal() -> int:
    import torch

    return torch.cuda.current_device()


def _descriptor_type() -> Any:
    return cuda_driver().CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


def _taken(answer: tuple[Any, ...]) -> Any:
    error, *values = answer
    if int(error):
        raise RuntimeError(f"the CUDA driver said {error.name}")
    return values[0] if values else None
