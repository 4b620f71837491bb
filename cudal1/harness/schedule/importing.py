"""Import PyTorch once for all processes that a device's process forks."""

from __future__ import annotations

import gc
import importlib
from contextlib import suppress
from subprocess import SubprocessError
from typing import Any

FIRST_KERNEL = (
    "triton.experimental.gluon",
    "triton.tools.tensor_descriptor",
    "cudal1.harness.oracle.deviation_kernels",
)
"""Modules that a process would import for its first Triton kernel."""


def import_once() -> Any:
    """Import PyTorch for all processes that are forked."""
    gc.disable()  # imports make a million objects, and hardly any garbage
    try:
        return _imported()
    finally:
        gc.enable()


def _imported() -> Any:
    torch = importlib.import_module("torch")
    if torch.version.cuda is not None:
        # else each process finds this out before its first kernel, which takes half a second
        with suppress(ImportError, AttributeError, OSError, AssertionError, SubprocessError):
            importlib.import_module("triton.runtime.cache").triton_key()
            importlib.import_module("triton.backends.nvidia.driver").libcuda_dirs()
        with suppress(ImportError):
            for module in FIRST_KERNEL:
                importlib.import_module(module)
    return torch
