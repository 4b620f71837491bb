"""Errors for want of memory are recognised among others, whatever raises them."""

from __future__ import annotations

import pytest
import torch

from cudal1.harness.device.shortage import raise_shortage


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB."),
        MemoryError(),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_an_error_for_want_of_memory_is_raised_as_a_shortage(error: Exception) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        raise_shortage(error)


def test_an_allocation_that_is_too_large_for_the_cpu_is_a_shortage() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 55)
    with pytest.raises(torch.OutOfMemoryError, match=r"^DefaultCPUAllocator: can't allocate"):
        raise_shortage(caught.value)


class NoTextError(Exception):
    def __str__(self) -> str:
        raise KeyError("no text")


@pytest.mark.parametrize(
    "error", [RuntimeError("shapes do not match"), ValueError("no memory"), NoTextError()]
)
def test_any_other_error_is_not_raised(error: Exception) -> None:
    raise_shortage(error)
