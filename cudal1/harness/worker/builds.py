"""What a candidate's process compiled, for later processes of the same candidate.

Compilers are told to keep what they make in one folder, which has one name in every process:
Triton and Inductor note where a file lies. Threat: all of it is the candidate's to write. It goes
to the judge as bytes that the judge never looks into, and comes back to the same candidate alone.
"""

from __future__ import annotations

import contextlib
import tarfile
from pathlib import Path

FOLDER = "built"
PLACES = {
    "TRITON_HOME": "", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "extensions",
    "CUDA_CACHE_PATH": "cuda", "CUPY_CACHE_DIR": "cupy",
}  # fmt: skip
"""Below that folder, what each compiler is told by."""


def places(home: str) -> dict[str, str]:
    """What tells compilers where to keep what they make."""
    return {name: str(Path(home, FOLDER, inner)) for name, inner in PLACES.items()}


def hand_over(descriptor: int, home: str) -> None:
    """Write what was compiled to the judge's file, if anything was."""
    folder = Path(home, FOLDER)
    with open(descriptor, "wb") as file:
        if folder.exists():
            with tarfile.open(fileobj=file, mode="w") as archive:
                archive.add(folder, FOLDER)


def unpack(descriptor: int, home: str) -> None:
    """Lay out what an earlier process of the candidate handed over; what is wrong is left out."""
    with (
        contextlib.suppress(OSError, tarfile.TarError),
        open(descriptor, "rb") as file,
        tarfile.open(fileobj=file) as archive,
    ):
        archive.extractall(home, filter="data")
