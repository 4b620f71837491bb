"""The compilers of candidates' extensions and kernels on this machine, and whether they exist.

A candidate is not to blame for a compiler or CuPy that the judge's machine lacks: the caller is
told, and there is no verdict.
"""

from __future__ import annotations

import importlib.util
import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from cudal1 import processes
from cudal1.harness.shared import places
from cudal1.problem import DeviceClass
from cudal1.protocol import HARNESS_VERSION
from cudal1.record import content_id

COMPILES = "cpp_extension"
"""Word in a source that may compile an extension."""
BY_PROGRAMS = re.compile(r"\b(?:nvcc|gcc|clang|cc1plus|cffi|cppyy|setuptools|pybind11)\b|[gc]\+\+")
"""Words in a source that may start compilers by itself."""
INDUCTOR = re.compile(
    r"(?<!\bre)\.\s*compile\b|\binductor\b|^from[ \t]+torch[ \t]+import\b[^\n]*\bcompile\b",
    re.MULTILINE,
)
NUMBA = re.compile(r"\bnumba\b")
IN_PROCESS = re.compile(
    rf"{INDUCTOR.pattern}|{NUMBA.pattern}|\btriton\b|\bcupyx?\b|\btorch\s*\.\s*jit\b|\bjiterator\b"
    r"|\bnvrtc\b|\bpycuda\b|\bcutlass\b|\btilelang\b|\bcuda\.core\b",
    re.MULTILINE,
)
"""Words in a source that may compile in its own process, by a library."""
IN_PROCESS_WORDS = (
    "compile inductor numba triton cupy jit nvrtc pycuda cutlass tilelang cuda.core".split()
)
"""Words of which each match of `IN_PROCESS` has one; a search for them is far faster."""
PROGRAMS = ("c++", "ninja", "nvcc")
NVCC = "/usr/local/cuda/bin/nvcc"
"""Path at which PyTorch looks for nvcc if PATH has none."""
OF_CUDA = re.compile(r"cuda_sources|\.cu\b")
CUPY = "cupy"
IMPORTS_CUPY = re.compile(r"^[ \t]*(?:import\b[^\n#]*\bcupy|from[ \t]+cupy)x?\b", re.MULTILINE)
OURS = ("g++", "nvcc", "__main__.py", "compile.py", "headers.py", "siblings.py", "steps.py")
ASKING_S = 60.0


def compiles(source: str) -> bool:
    """Return whether a source names anything that compiles in import, construction or a call.

    A word in a comment is enough: it costs patience, and that only while something compiles.
    """
    return COMPILES in source or bool(BY_PROGRAMS.search(source)) or compiles_itself(source)


def compiles_itself(source: str) -> bool:
    """Return whether a source names a compiler that works in the candidate's own process."""
    folded = source.casefold()
    return any(word in folded for word in IN_PROCESS_WORDS) and bool(IN_PROCESS.search(folded))


def compiles_without(source: str, device_class: DeviceClass) -> bool:
    """Return whether a source names a compiler that needs no device and keeps its results.

    Inductor and Numba compile for a processor anywhere, for a GPU only where there is one.
    """
    if COMPILES in source:
        return True
    on_gpu = device_class is DeviceClass.CUDA
    return not on_gpu and bool(INDUCTOR.search(source) or NUMBA.search(source))


def where(program: str) -> str | None:
    """Return the path by which workers find a program; None without one."""
    found = shutil.which(program, path=places.PATH)
    return shutil.which(NVCC) if found is None and program == "nvcc" else found


def where_cupy() -> str | None:
    """Return the file by which workers import CuPy, which may launch candidates' kernels."""
    found = importlib.util.find_spec(CUPY)
    return None if found is None else found.origin


def missing_for(source: str, device_class: DeviceClass) -> tuple[str, ...]:
    """Return what the source needs and workers here lack: programs for an extension, CuPy."""
    is_on_gpu = device_class is DeviceClass.CUDA
    needed: tuple[str, ...] = ()
    if COMPILES in source:
        needed = PROGRAMS if is_on_gpu and OF_CUDA.search(source) else PROGRAMS[:-1]
    missing = tuple(name for name in needed if where(name) is None)
    if is_on_gpu and IMPORTS_CUPY.search(source) and where_cupy() is None:
        missing += (CUPY,)
    return missing


def remedy(missing: tuple[str, ...]) -> str:
    """Return the message on a candidate that is not judged because these are missing."""
    said: list[str] = []
    if programs := [name for name in missing if name != CUPY]:
        said.append(
            f"compiles an extension, and workers find no {' and no '.join(programs)} in "
            f"{places.PATH}; install what is missing (c++: g++, ninja: pip install ninja, nvcc: "
            "the CUDA toolkit)"
        )
    if CUPY in missing:
        said.append(f"imports CuPy, which is not installed here; {_cupy_remedy()}")
    return "; ".join(said)


def _cupy_remedy() -> str:
    """Return how to install CuPy, which has a wheel for each major version of CUDA."""
    import torch

    if version := torch.version.cuda:
        return f"pip install cupy-cuda{version.partition('.')[0]}x"
    return "PyTorch has no CUDA here either: install its CUDA build first"


def fingerprint(arch: str | None) -> str:
    """Return what a build depends on beside its source, as far as a worker sees it.

    Compilers' rules hold paths, and ninja compares the ages of headers.
    """
    import torch

    torch_folder = Path(torch.__file__).parent
    said = [
        HARNESS_VERSION,
        arch or "",
        processor(),
        sys.prefix,
        platform.python_version(),
        torch.__version__,
        str(torch_folder),
        str((torch_folder / "version.py").stat().st_mtime_ns),
        places.HOME,
        *((places.EXTENSIONS / name).read_text() for name in OURS),
    ]
    for name in PROGRAMS:
        if path := where(name):
            with suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(
                    [path, "--version"],
                    env=processes.sparse(),
                    capture_output=True,
                    text=True,
                    check=False,
                    timeout=ASKING_S,
                )
                said.append(done.stdout)
    return content_id(*said)


def processor() -> str:
    """Return the processor's model: an extension may be compiled for exactly that."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line
    return platform.machine()
