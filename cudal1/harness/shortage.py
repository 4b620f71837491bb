"""Errors for want of memory: they say nothing of the code that raised them.

PyTorch has a class of its own for its allocator on a GPU. Its allocator on the CPU, the driver,
Triton and cuBLAS raise RuntimeErrors, which only their words tell from others.
"""

from __future__ import annotations

import re

LACKS_MEMORY = re.compile(r"MemoryError|out of memory|allocate memory|ALLOC_FAILED")
_WHERE = re.compile(r"^\[enforce fail at [^\]]*\] err == 0\. ")
"""What the CPU's allocator begins with: a line of PyTorch's own."""


def lacks_memory(said: str) -> bool:
    """Whether an error or a reason is for want of memory; with less beside it, it may be none."""
    return LACKS_MEMORY.search(said) is not None


def raise_shortage(error: Exception) -> None:
    """Nothing, unless it is for want of memory.

    For whoever takes an error for an answer: that a reference cannot do an input, say.

    Raises:
        OutOfMemoryError: PyTorch's, whoever found no memory.
    """
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        raise error
    if lacks_memory(f"{type(error).__name__}: {error}"):
        raise torch.OutOfMemoryError(_WHERE.sub("", str(error))) from error
