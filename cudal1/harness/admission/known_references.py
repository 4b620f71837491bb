"""Results for references, kept on disk for later runs of this user.

Trying a reference takes seconds. The result stays the same as long as everything that it depends on
does: `Circumstances` lists that, and is the name of a record. No record holds a time that a verdict
rests on.

Threat: a record of another user would decide this user's verdicts. So the folder must be this
user's alone, no link is followed inside it, and a record is JSON that is validated, never code. The
trusted process writes records, from the answers of a problem's own process. These answers can spoil
the record of their problem, as its source can, and no other record. A problem's code runs as this
user, and is trusted not to write here, as elsewhere. No candidate sees the folder. A full disk or a
damaged record costs the stored results, and nothing else.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import logging
import os
import platform
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from cudal1.files.user_cache import cache_folder
from cudal1.harness.builds.toolchain import processor
from cudal1.harness.device.device import Device
from cudal1.problem import Problem
from cudal1.protocol import HARNESS_VERSION, Contract, EvalProtocol, Mode, PrecisionClass
from cudal1.record import Record

log = logging.getLogger("cudal1")

KEPT_BYTES = 64 << 20
"""Maximum bytes of all records together, some ten thousand; beyond it the oldest are removed."""
LEFT = 0.75
"""Share of `KEPT_BYTES` that is left after a removal."""
RECORD_BYTES = 1 << 20
"""Maximum bytes of one record."""
FORGOTTEN_S = 3600.0
"""Seconds after which an unfinished file counts as left behind by a process that died."""
SUFFIX, UNFINISHED = ".json", ".part"
ROOMS = ("admission", "device", "inputs", "oracle", "reference", "shared")
OURS = (*(f"harness/{room}/*.py" for room in ROOMS), "kill_table.py", "problem.py", "files/*.py")
"""Our code that produces the records; it changes more often than the harness's version."""

Kind = TypeVar("Kind", bound=Record)


class Circumstances(Record):
    """Everything that a result for a reference depends on."""

    source: str
    """SHA-256 of the problem's source."""
    harness: str
    """`HARNESS_VERSION`."""
    code: str
    """SHA-256 of our own modules that examine references."""
    python: str
    packages: str
    """SHA-256 of the names and versions of all installed packages, PyTorch's build included: a
    reference may import any of them."""
    device: str
    """Kind of the device that is to judge."""
    driver: str | None
    """Version of the GPU driver."""
    processor: str
    precision: PrecisionClass
    """Decides what the reference's operators may round, and which families it is accurate on."""
    mode: Mode
    seed: int
    """Seed of the public weights."""

    @classmethod
    def of(cls, problem: Problem, protocol: EvalProtocol, device: Device) -> Self:
        """Return the circumstances of a problem that is to be judged."""
        return cls.model_validate(_parts(problem, protocol, device))


class TrialCircumstances(Circumstances):
    """The circumstances of a trial with the check that candidates have to pass."""

    contract: Contract
    correctness_stages: tuple[int, ...]

    @classmethod
    def of(cls, problem: Problem, protocol: EvalProtocol, device: Device) -> Self:
        """Return the circumstances of a problem that is to be judged."""
        check = {"contract": protocol.contract, "correctness_stages": protocol.correctness_stages}
        return cls.model_validate(_parts(problem, protocol, device) | check)


def _parts(problem: Problem, protocol: EvalProtocol, device: Device) -> dict[str, object]:
    return {
        "source": _sha256(problem.source),
        "harness": HARNESS_VERSION,
        "code": _our_code(),
        "python": platform.python_version(),
        "packages": _packages(),
        "device": device.kind,
        "driver": device.driver,
        "processor": processor(),
        "precision": protocol.precision,
        "mode": protocol.mode,
        "seed": protocol.seed,
    }


class Size(NamedTuple):
    """The size of a folder of records."""

    num_records: int
    num_bytes: int


class KnownReferences:
    """A folder of records, for several processes at once; it is made when it is first needed.

    Args:
        folder: its path. A folder that is not this user's alone is not used; a warning says so
            once.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, about: Circumstances, kind: type[Kind]) -> Kind | None:
        """Return the result that is stored for exactly these circumstances; None without one."""
        with suppress(OSError, ValueError, RecursionError), self._opened() as folder:
            record = json.loads(_read(_name(about, kind), folder))
            if isinstance(record, dict) and record.get("about") == about.model_dump(mode="json"):
                return kind.model_validate(record.get("found"))
        return None

    def keep(self, about: Circumstances, found: Record) -> None:
        """Store a result; a full disk stores nothing."""
        record = {"about": about.model_dump(mode="json"), "found": found.model_dump(mode="json")}
        content = json.dumps(record).encode()
        if len(content) > RECORD_BYTES:
            return
        with suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._opened() as folder:
                _write(_name(about, type(found)), content, folder)
                _make_room(folder)

    def forget(self) -> Size:
        """Remove all records, and return how many there were."""
        size = Size(0, 0)
        with suppress(OSError), self._opened() as folder:
            for name, info in _files(folder):
                os.unlink(name, dir_fd=folder)
                size = Size(size.num_records + 1, size.num_bytes + info.st_size)
        return size

    def size(self) -> Size:
        """Return the number and bytes of all records."""
        with suppress(OSError), self._opened() as folder:
            sizes = [info.st_size for _, info in _files(folder)]
            return Size(len(sizes), sum(sizes))
        return Size(0, 0)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """Open the folder itself, even if another takes its place meanwhile.

        Raises:
            OSError: it does not exist, or is not this user's alone.
        """
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            info = os.fstat(folder)
            if info.st_uid != os.geteuid() or stat.S_IMODE(info.st_mode) & 0o077:
                _warn(self.folder)
                raise PermissionError(f"{self.folder}: others may write there")
            yield folder
        finally:
            os.close(folder)


def of_this_user() -> KnownReferences | None:
    """Return the records of this user's runs; None where there is no HOME."""
    with suppress(RuntimeError):
        return KnownReferences(cache_folder("references"))
    return None


@functools.cache
def _warn(folder: Path) -> None:
    log.warning(
        "%s: what is found of references is not kept there, and what lies there is not read, since "
        "it is not this user's alone: remove it, or set XDG_CACHE_HOME to a folder of this user's",
        folder,
    )


def _name(about: Circumstances, kind: type[Record]) -> str:
    return _sha256(kind.__name__, about.model_dump_json()) + SUFFIX


def _read(name: str, folder: int) -> bytes:
    """Return a record's content.

    Raises:
        OSError: it does not exist, or is no file of this user's that can be a record.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb") as file:
        info = os.fstat(file.fileno())
        is_ours = stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid()
        if not is_ours or info.st_size > RECORD_BYTES:
            raise PermissionError(f"{name}: no record of this user's")
        return file.read(RECORD_BYTES)


def _write(name: str, content: bytes, folder: int) -> None:
    """Store a record as a whole: a reader sees the earlier record or this one."""
    unfinished = f"{name}.{secrets.token_hex(8)}{UNFINISHED}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(unfinished, flags, 0o600, dir_fd=folder), "wb") as file:
            file.write(content)
        os.rename(unfinished, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(OSError):
            os.unlink(unfinished, dir_fd=folder)
        raise


def _make_room(folder: int) -> None:
    """Remove unfinished files that were left behind and, beyond the limit, the oldest records."""
    files = sorted(_files(folder), key=lambda file: file[1].st_mtime_ns)
    num_bytes = sum(info.st_size for _, info in files)
    most = LEFT * KEPT_BYTES if num_bytes > KEPT_BYTES else KEPT_BYTES
    for name, info in files:
        is_left = name.endswith(UNFINISHED) and time.time() - info.st_mtime > FORGOTTEN_S
        if not is_left and num_bytes <= most:
            continue
        with suppress(FileNotFoundError):  # another process removed it
            os.unlink(name, dir_fd=folder)
        num_bytes -= info.st_size


def _files(folder: int) -> list[tuple[str, os.stat_result]]:
    """Return the files that this module has made; no other file is touched."""
    found: list[tuple[str, os.stat_result]] = []
    for name in os.listdir(folder):
        if name.endswith((SUFFIX, UNFINISHED)):
            with suppress(FileNotFoundError):
                info = os.stat(name, dir_fd=folder, follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    found.append((name, info))
    return found


def _sha256(*parts: str) -> str:
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(len(encoded).to_bytes(8, "big"))
        digest.update(encoded)
    return digest.hexdigest()


@functools.cache
def _our_code() -> str:
    root = Path(__file__).parents[2]
    files = sorted(file for pattern in OURS for file in root.glob(pattern))
    return _sha256(*(text for file in files for text in (file.name, file.read_text("utf-8"))))


@functools.cache
def _packages() -> str:
    """Return a digest of the installed packages and PyTorch's build, without importing any."""
    names: set[str] = set()
    for folder in (each for each in sys.path if each.endswith(("site-packages", "dist-packages"))):
        with suppress(OSError):
            found = (path.name for path in Path(folder).iterdir())
            names |= {name for name in found if name.endswith((".dist-info", ".egg-info"))}
    spec = importlib.util.find_spec("torch")
    build = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    text = build.read_text("utf-8") if build and build.is_file() else ""
    return _sha256(*sorted(names), text)
