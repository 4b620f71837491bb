"""What candidates compiled, kept for their later processes: by source and toolchain, in a folder.

Threat: it is bytes of the candidate's own, which no process but one with the same source ever
reads. What it may learn from an earlier one gains nothing: inputs are new, and so are the answers.
The folder is the judge's; no worker can see it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from cudal1.harness import places
from cudal1.record import content_id

MAX_BYTES = 4 << 30
"""Of a folder; beyond it, what was not asked for the longest goes."""
MAX_NOTHINGS = 100_000
"""Sources that compiled nothing, remembered until the process ends."""
COMPILERS = ("c++", "nvcc", "/usr/local/cuda/bin/nvcc")


class Builds:
    """By source.

    Args:
        folder: where they lie, which several judges may share; made if it is missing.
        arch: what they are compiled for, where that is not the processor.
    """

    def __init__(self, folder: Path, *, arch: str | None = None) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._folder = folder
        self._toolchain = toolchain(arch)
        self._nothings: dict[str, None] = {}
        self._num_bytes = sum(size for _, size, _ in self._files())

    def __contains__(self, source: str) -> bool:
        name = self._name(source)
        return name in self._nothings or Path(self._folder, name).exists()

    def of(self, source: str) -> bytes:
        """What one compiled; empty where nothing is known."""
        path = Path(self._folder, self._name(source))
        with contextlib.suppress(OSError):
            content = path.read_bytes()
            os.utime(path)
            return content
        return b""

    def keep(self, source: str, content: bytes) -> None:
        """Remember it, though it be nothing; a disk that is full forgets."""
        name = self._name(source)
        if not content:
            if len(self._nothings) >= MAX_NOTHINGS:
                self._nothings.clear()
            self._nothings[name] = None
            return
        with contextlib.suppress(OSError):
            descriptor, path = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            Path(path).replace(Path(self._folder, name))
        self._num_bytes += len(content)
        if self._num_bytes > MAX_BYTES:
            self._make_room()

    def _make_room(self) -> None:
        files = sorted(self._files())
        self._num_bytes = sum(size for _, size, _ in files)
        for _, size, path in files:
            if self._num_bytes <= MAX_BYTES:
                break
            path.unlink(missing_ok=True)
            self._num_bytes -= size

    def _files(self) -> list[tuple[float, int, Path]]:
        """When each was last asked for, and how large it is."""
        found: list[tuple[float, int, Path]] = []
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):  # another judge made room
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        return found

    def _name(self, source: str) -> str:
        return content_id(source, self._toolchain)


@cache
def toolchain(arch: str | None) -> str:
    """What a build depends on beside its source, as far as a worker finds it."""
    import torch

    said = [arch or platform.machine(), torch.__version__, platform.python_version(), places.HOME]
    for program in COMPILERS:
        if path := shutil.which(program, path=places.PATH):
            done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            said.append(done.stdout)
    return content_id(*said)


def default_folder() -> Path:
    """Where runs on files of candidates keep them."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(caches, "cudal1", "builds")
