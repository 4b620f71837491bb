"""What a candidate's process compiled, for later processes of the same candidate.

Compilers are told to keep what they make in one folder, which has one name in every process:
Triton and Inductor note where a file lies. Threat: all of it is the candidate's to write. It goes
to the judge as bytes that the judge never looks into, and comes back to the same candidate alone.
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
    "TRITON_HOME": "", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TORCH_EXTENSIONS_DIR": "extensions",
    "CUDA_CACHE_PATH": "cuda", "CUPY_CACHE_DIR": "cupy", "NUMBA_CACHE_DIR": "numba",
}  # fmt: skip
"""Below that folder, what each compiler is told by."""
LOCK = "lock"
"""The file that says that an extension is being compiled, without its owner."""
LIMIT_S, UNHURRIED_S = 4.0, 15.0
"""Seconds to hand it over in; the judge waits for twice as long. Each later process would compile
again what is not handed over."""
MAX_JOBS = "2"
"""Files of one candidate compiled at a time, where many candidates are built: PyTorch would take
one for each core. An extension has one for the host and one of two halves for the device."""
FAILED = re.compile(r"Error (?:building extension|compiling objects)")
"""What PyTorch says when an extension was not built."""
COMMANDS = re.compile(r"^(?:: )?\[\d+/\d+\] .*\n|^FAILED: .*\n.*\n|^ninja: .*\n?", re.MULTILINE)
"""Ninja's own lines: each command, the one that failed once more, and that it stops."""
ASKS_DEVICE = re.compile(
    rb"is_available|is_initialized|device_count|get_device|current_device|nvidia-smi|arch=native"
    rb"|/dev/|/proc/|\bexcept\b|\bsuppress\b"
)
"""In a source that may compile something else where there is a device: it asks, or goes on after
what failed for want of one."""


def warm_up() -> None:
    """Import what compiles extensions before workers are forked: each would need 0.2 s for it.

    At its import it asks whether there is a device, which would leave every worker without one.
    """
    with (
        contextlib.suppress(Exception),  # such as of setuptools: who compiles finds it out
        patch.object(torch.cuda, "is_available", return_value=True),
    ):
        import_module("torch.utils.cpp_extension")


def places(home: str) -> dict[str, str]:
    """What tells compilers where to keep what they make."""
    return {name: str(Path(home, FOLDER, inner)) for name, inner in PLACES.items()}


def has_failed(error: BaseException) -> bool:
    """Whether an extension was not built, for whatever reason."""
    return FAILED.search(str(error)) is not None


def complaint(error: BaseException, source: bytes) -> str:
    """What a compiler says of a line, if that alone is why an extension was not built; or nothing.

    A candidate can pretend it: then it has not been built.
    """
    said = str(error)
    if not has_failed(error) or LOCATED.search(said) is None:
        return ""
    if NOT_ITS_FAULT.search(said) or ASKS_DEVICE.search(source):
        return ""
    return described(error)


def described(error: BaseException) -> str:
    """An exception in words; of an extension that was not built, the compiler's own.

    That is the first error of a line, or else (a linker's, say) the last that was said. PyTorch
    hands on what ninja says, whose commands are longer than what is shown of a reason.
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

    That is 0 if it does not fit, takes longer than `limit_s`, or changes meanwhile.
    """
    deadline = time.monotonic() + limit_s

    def packed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if time.monotonic() > deadline:
            raise TimeoutError
        if Path(member.name).name == LOCK:
            return None
        member.mtime = int(member.mtime)  # ninja takes a file for new that is newer by a rounding
        return member

    with contextlib.suppress(Exception), open(descriptor, "wb") as file:
        if Path(home, FOLDER).exists():
            with tarfile.open(fileobj=file, mode="w") as archive:
                archive.add(Path(home, FOLDER), FOLDER, filter=packed)
            return file.tell()
    return 0


def unlock(home: str) -> None:
    """Forget that a process was compiling that has ended: the next would wait for it for good."""
    for lock in Path(places(home)["TORCH_EXTENSIONS_DIR"]).rglob(LOCK):
        with contextlib.suppress(OSError):
            lock.unlink()


def unpack(descriptor: int, home: str) -> None:
    """Lay out the files that an earlier process of the candidate handed over.

    As far as they can be read; whatever the archive says, they lie below `home`.
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
