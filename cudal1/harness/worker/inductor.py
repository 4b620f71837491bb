"""Import once what `torch.compile` imports in each process, before workers are forked.

Importing Inductor, hashing its sources and importing what it needs to compile take four seconds in
each process that compiles. A worker that inherits them needs one second. Nothing is compiled in
this process itself, because Inductor keeps patterns of the first graph's device for all other
graphs. The driver is not touched: a context does not survive a fork.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import NoReturn
from unittest.mock import patch

import torch

LIMIT_S = 30
"""Seconds for a child that compiles. A process that needs a module that the child has not told by
then imports it later."""
CACHE = "TORCHINDUCTOR_CACHE_DIR"
SIZE = 64
"""Rows and columns of a matrix. Smaller matrices are multiplied by a program, which a compiler
would have to make."""


def warm_up() -> None:
    """Import what a compilation needs; ignore what stops that: a compiling process finds it out."""
    with TemporaryDirectory(dir=".") as os.environ[CACHE]:
        _imported(["torch._inductor.codecache", "torch._inductor.compile_fx"])
        with contextlib.suppress(Exception):
            sys.modules["torch._inductor.codecache"].torch_key()
        _imported(_of_a_compilation())
    del os.environ[CACHE]


def _imported(names: Sequence[str]) -> None:
    # some modules ask; asking the driver would leave every worker without a device
    with patch.object(torch.cuda, "is_available", return_value=True):
        for name in names:
            with contextlib.suppress(Exception):  # such as a module that the child compiled
                import_module(name)


def _of_a_compilation() -> list[str]:
    """Return the modules that a child imports while it compiles a product of matrices."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        _compile(writing)
    os.close(writing)
    with open(reading) as told:
        names = told.read().split()
    with contextlib.suppress(ChildProcessError):  # the parent may have had children ignored
        os.waitpid(child, 0)
    return names


def _compile(writing: int) -> NoReturn:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LIMIT_S)
    try:
        before = set(sys.modules)
        torch.compile(_product)(torch.ones(SIZE, SIZE))
        os.write(writing, " ".join(name for name in sys.modules if name not in before).encode())
    finally:
        os._exit(0)


def _product(x: torch.Tensor) -> torch.Tensor:
    return x @ x
