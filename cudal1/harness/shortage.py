"""Errors for want of memory: they say nothing of the code that raised them.

PyTorch has a class of its own for its allocator on a GPU. Its allocator on the CPU, the driver,
Triton and cuBLAS raise RuntimeErrors, which only their words tell from others.
"""

from __future__ import annotations

import contextlib
import re

LACKS_MEMORY = re.compile(r"MemoryError|out of memory|allocate memory|ALLOC_FAILED")
_WHERE = re.compile(r"^\[enforce fail at [^\]]*\] err == 0\. ")
"""What the CPU's allocator begins with: a line of PyTorch's own."""


def lacks_memory(said: str) -> bool:
    """Whether an error or a reason is for want of memory; with less beside it, it may be none."""
    return LACKS_MEMORY.search(said) is not None


def raise_shortage(error: BaseException) -> None:
    """Raise errors for want of memory as PyTorch's own; do nothing about others.

    Callers take other errors for an answer, such as that a reference cannot do an input. The text
    of an error may be somebody else's code, and may raise: then it says nothing of memory.

    Raises:
        OutOfMemoryError: PyTorch's, for any error for want of memory.
    """
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        raise error
    said = ""
    with contextlib.suppress(Exception):
        said = str(error)
    if lacks_memory(f"{type(error).__name__}: {said}"):
        raise torch.OutOfMemoryError(_WHERE.sub("", said) or type(error).__name__) from error
