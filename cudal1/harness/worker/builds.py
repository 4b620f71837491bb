"""Keep what a candidate's process compiled, for later processes of the same candidate.

Compilers are told to keep their output in one folder. The folder has one name in every process,
because Triton and Inductor note where a file lies. Threat: the candidate may write all of it. It
goes to the judge as bytes that the judge never looks into. It returns to the same candidate alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import tarfile
import time
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

import torch

from cudal1.harness.worker.extensions.compile import LOCATED, NOT_ITS_FAULT

FOLDER = "built"
PLACES = {
    "TRITON_HOME": "",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "CUDA_CACHE_PATH": "cuda",
    "CUPY_CACHE_DIR": "cupy",
    "NUMBA_CACHE_DIR": "numba",
}
"""Subfolder of `FOLDER` for each compiler, by the environment variable that tells the compiler."""
LOCK = "lock"
"""Name of the file that says that an extension is being compiled; the file does not name its
owner."""
LIMIT_S, UNHURRIED_S = 4.0, 15.0
"""Seconds for handing the output over, from a judged worker and from a build worker. The judge
waits for twice as long. Each later process would compile again what is not handed over."""
MAX_JOBS = "2"
"""Number of files of one candidate that compile at a time. Many candidates are built at once, and
PyTorch would start one job for each core. An extension has one file for the host and one of two
halves for the device."""
FAILED = re.compile(r"Error (?:building extension|compiling objects)")
"""PyTorch's message when an extension was not built."""
COMMANDS = re.compile(r"^(?:: )?\[\d+/\d+\] .*\n|^FAILED: .*\n.*\n|^ninja: .*\n?", re.MULTILINE)
"""Ninja's own lines: each command, the failed command once more, and the notice that ninja
stops."""
ASKS_DEVICE = re.compile(
    r"is_available|is_initialized|device_count|get_device|current_device|nvidia-smi|arch=native"
    r"|/dev/|/proc/|\bexcept\b|\bsuppress\b"
)
"""Words of a source that may compile something else where there is a device. Such a source asks for
a device, or goes on after something failed for want of one."""


def warm_up() -> None:
    """Import what compiles extensions before workers are forked: each would need 0.2 s for it.

    The import asks whether there is a device. Asking the driver would leave every worker without
    one.
    """
    with (
        contextlib.suppress(Exception),  # such as of setuptools: a compiling process meets it
        patch.object(torch.cuda, "is_available", return_value=True),
    ):
        import_module("torch.utils.cpp_extension")


def places(home: str) -> dict[str, str]:
    """Return the environment variables that tell compilers where to keep their output."""
    return {name: str(Path(home, FOLDER, inner)) for name, inner in PLACES.items()}


def has_failed(error: BaseException) -> bool:
    """Return whether an error says that an extension was not built, for whatever reason."""
    return FAILED.search(str(error)) is not None


def complaint(error: BaseException, source: str) -> str:
    """Return a compiler's message on a line, if that alone stopped an extension; else nothing.

    A candidate can pretend such a message: then its extension has not been built.
    """
    said = str(error)
    if not has_failed(error) or LOCATED.search(said) is None:
        return ""
    if NOT_ITS_FAULT.search(said) or ASKS_DEVICE.search(source):
        return ""
    return described(error)


def described(error: BaseException) -> str:
    """Describe an exception; for an extension that was not built, quote the compiler.

    The quote is the first error about a line. Without one it is the last lines of output, such as a
    linker's. PyTorch passes on ninja's output, and ninja's commands are longer than what is shown
    of a reason.
    """
    said = str(error)
    if has_failed(error):
        what = said.partition("\n")[0].partition(": [")[0]
        found = LOCATED.search(said)
        tools = COMMANDS.sub("", said.removeprefix(what)).removeprefix(": ").splitlines()
        words = found.group().strip() if found else " ".join(tools[-3:])
        said = f"{what}: {words}" if words else what
    return f"{type(error).__name__}: {said}"


def hand_over(descriptor: int, home: str, limit_s: float = LIMIT_S) -> int:
    """Write what was compiled to the judge's file, which cannot grow; return the number of bytes.

    The number is 0 if the files do not fit, take longer than `limit_s`, or change meanwhile.
    """
    deadline = time.monotonic() + limit_s

    def packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if time.monotonic() > deadline:
            raise TimeoutError
        if Path(member.name).name == LOCK:
            return None
        member.mtime = int(member.mtime)  # to ninja a file that is newer by a rounding is new
        return member

    with contextlib.suppress(Exception), open(descriptor, "wb") as file:
        if Path(home, FOLDER).exists():
            with tarfile.open(fileobj=file, mode="w") as archive:
                archive.add(Path(home, FOLDER), FOLDER, filter=packed)
            return file.tell()
    return 0


def unlock(home: str) -> None:
    """Remove the locks of a compiler that has ended: the next compiler would wait for good."""
    for lock in Path(places(home)["TORCH_EXTENSIONS_DIR"]).rglob(LOCK):
        with contextlib.suppress(OSError):
            lock.unlink()


def unpack(descriptor: int, home: str) -> None:
    """Lay out the files that an earlier process of the candidate handed over.

    Reading stops at the first error. Whatever the archive says, the files lie below `home`.
    """
    with (
        contextlib.suppress(Exception),
        open(descriptor, "rb") as file,
        tarfile.open(fileobj=file, mode="r:") as archive,
    ):
        for member in archive:
            path, content = Path(home, *Path(member.name).parts), archive.extractfile(member)
            if content is None or ".." in path.parts or not path.is_relative_to(home):
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.read())
            path.chmod(0o700)
            os.utime(path, (member.mtime, member.mtime))
