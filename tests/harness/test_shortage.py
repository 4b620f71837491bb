"""Errors for want of memory are told from others, whoever raises them."""

from __future__ import annotations

import pytest
import torch

from cudal1.harness.shortage import raise_shortage


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB."),
        MemoryError(),
        RuntimeError("Triton Error [CUDA]: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_who_lacks_memory_is_raised_as_that(error: Exception) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        raise_shortage(error)


def test_so_is_who_asks_the_cpu_for_more_than_there_is() -> None:
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
def test_any_other_error_is_nothing(error: Exception) -> None:
    raise_shortage(error)
