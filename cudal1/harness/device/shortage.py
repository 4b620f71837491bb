"""Recognise errors for want of memory: they say nothing of the code that raised them.

PyTorch has a class of its own for errors of its allocator on a GPU. Its allocator on the CPU, the
driver, Triton and cuBLAS raise RuntimeErrors. Only the text tells these from other errors.
"""

from __future__ import annotations

import contextlib
import re

LACKS_MEMORY = re.compile(r"MemoryError|out of memory|allocate memory|ALLOC_FAILED")
_WHERE = re.compile(r"^\[enforce fail at [^\]]*\] err == 0\. ")
"""The beginning of a message of the CPU's allocator: a source line of PyTorch's own."""


def lacks_memory(said: str) -> bool:
    """Return whether an error or a reason is for want of memory.

    With fewer other users of the memory there may be no such error.
    """
    return LACKS_MEMORY.search(said) is not None


def raise_shortage(error: BaseException) -> None:
    """Re-raise errors for want of memory as PyTorch's OutOfMemoryError; ignore other errors.

    Callers take other errors for an answer, such as that a reference cannot compute an input.
    Making the text of an error may run a third party's code, which may raise: then the text says
    nothing of memory.

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
