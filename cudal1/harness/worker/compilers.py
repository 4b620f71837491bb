"""Do once what Triton does in each process, before workers are forked.

Importing Triton, hashing its sources, asking for its assembler's version and compiling its C
helpers take two seconds. A worker that inherits all of it compiles a small kernel in 50 ms. Nothing
here touches the driver: a context does not survive a fork.
"""

# pyright: reportMissingImports=false, reportIndexIssue=false
# Only PyTorch's CUDA builds bring Triton
from __future__ import annotations

import contextlib
import os
import tempfile

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.driver import CudaUtils
from triton.compiler import ASTSource

ANY_TARGET = GPUTarget("cuda", 80, 32)


@triton.jit
def _nothing(x_ptr):
    tl.store(x_ptr, 1.0)


def warm_up() -> None:
    """Compile a kernel that is never run; ignore what stops that, such as no C compiler.

    A worker that needs Triton then finds out in its own process, and says so.
    """
    with tempfile.TemporaryDirectory(dir=".") as folder:
        os.environ["TRITON_HOME"] = folder
        for prepare in (_compile, CudaUtils):
            with contextlib.suppress(Exception):  # Triton raises what its compilers raise
                prepare()
        del os.environ["TRITON_HOME"]


def _compile() -> None:
    triton.compile(ASTSource(_nothing, {"x_ptr": "*fp32"}), target=ANY_TARGET)
