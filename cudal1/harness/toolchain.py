"""What compiles candidates' extensions on this machine, and whether it is there.

Nobody is to blame for a compiler that the judge's machine lacks: who asks is told, and there is no
verdict.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from cudal1.harness import places
from cudal1.problem import DeviceClass
from cudal1.record import content_id

COMPILES = "cpp_extension"
"""In a source that may compile an extension."""
PROGRAMS = ("c++", "ninja", "nvcc")
NVCC = "/usr/local/cuda/bin/nvcc"
"""Where PyTorch looks where PATH has none."""
OF_CUDA = re.compile(r"cuda_sources|\.cu\b")
OURS = ("g++", "nvcc", "compile.py")
ASKING_S = 60.0


def where(program: str) -> str | None:
    """The path by which workers find one."""
    found = shutil.which(program, path=places.PATH)
    return shutil.which(NVCC) if found is None and program == "nvcc" else found


def missing_for(source: str, device_class: DeviceClass) -> tuple[str, ...]:
    """Programs that an extension in this source needs, and that workers here do not find."""
    if COMPILES not in source:
        return ()
    is_of_cuda = device_class is DeviceClass.CUDA and OF_CUDA.search(source)
    needed = PROGRAMS if is_of_cuda else PROGRAMS[:-1]
    return tuple(name for name in needed if where(name) is None)


def remedy(missing: tuple[str, ...]) -> str:
    """What to say of a candidate that is not judged for want of these."""
    return (
        f"compiles an extension, and workers find no {' and no '.join(missing)} in {places.PATH}; "
        "install what is missing (c++: g++, ninja: pip install ninja, nvcc: the CUDA toolkit)"
    )


def fingerprint(arch: str | None) -> str:
    """What a build depends on beside its source, as far as a worker finds it.

    Compilers' rules hold paths, and ninja compares the ages of headers.
    """
    import torch

    torch_folder = Path(torch.__file__).parent
    said = [
        arch or "", _processor(), sys.prefix, platform.python_version(), torch.__version__,
        str(torch_folder), str((torch_folder / "version.py").stat().st_mtime_ns), places.HOME,
        *((places.EXTENSIONS / name).read_text() for name in OURS),
    ]  # fmt: skip
    for name in PROGRAMS:
        if path := where(name):
            with suppress(OSError, subprocess.TimeoutExpired):
                done = subprocess.run(
                    [path, "--version"], capture_output=True, text=True, check=False,
                    timeout=ASKING_S,
                )  # fmt: skip
                said.append(done.stdout)
    return content_id(*said)


def _processor() -> str:
    """The model: an extension may be compiled for just that."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line
    return platform.machine()
