"""Lock devices, so that judges of one machine take turns, whichever users they belong to.

A user's own judges share a file in the temporary folder, which TMPDIR names. Another user may have
another temporary folder. So judges of different users also meet in a file that all of them find.
Each user has a byte of that file, which all judges of that user may lock at once. No judge works
while the byte of another user is locked.

Threat: every user may write to these folders. A file of another user is opened as it is: never
created over, never followed as a link. Its content is shown, not believed.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import random
import stat
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from cudal1.errors import DeviceError

LOOK_S = 0.2
"""Mean seconds between two tries to lock a device."""
SHARED = (Path("/dev/shm"), Path("/run/lock"), Path("/tmp"))
"""Folders that every user of a machine may write to; the first that exists is the meeting place.

No variable chooses the folder: users with different values would not meet.
"""
EVERYBODYS = stat.S_ISVTX | stat.S_IWOTH
"""Mode bits of such a folder: all users may make files, and remove none but their own."""
NUM_USERS = 1 << 32
"""Bytes of the file of all users: as many as Linux has user ids."""
_FLOCK = struct.Struct("hh4xqqi4x")
"""`struct flock` of Linux on 64 bits: type, whence, start, length, process."""


@contextmanager
def turn(name: str, device: str, *, wait_s: float) -> Iterator[None]:
    """Hold a device alone.

    Args:
        name: tells devices of this machine apart; part of a file's name.
        device: the device's name in messages.
        wait_s: seconds to wait while another judge holds it.

    Raises:
        DeviceError: it is in use for longer, or a lock cannot be opened; the message names the
            user.
    """
    deadline = time.monotonic() + wait_s
    mine = Path(tempfile.gettempdir()) / f"cudal1-device-{name}.lock"
    with _opened(mine, device) as own, _opened(_meeting_place(name), device) as everybodys:
        _wait(lambda: _locks(own), deadline, device, lambda: f"process {_words(own)}")
        _write_words(own)
        _wait(
            lambda: _locks_out_others(everybodys),
            deadline,
            device,
            lambda: f"user {_user(_other_user(everybodys))}",
        )
        yield


def _meeting_place(name: str) -> Path:
    for folder in SHARED:
        if folder.is_dir() and folder.stat().st_mode & EVERYBODYS == EVERYBODYS:
            return folder / f"cudal1-device-{name}.users"
    return Path(tempfile.gettempdir()) / f"cudal1-device-{name}.users"


def _wait(
    is_done: Callable[[], bool], deadline: float, device: str, holder: Callable[[], str]
) -> None:
    while not is_done():
        if time.monotonic() >= deadline:
            raise DeviceError(f"device {device} is in use by {holder()}: wait for it, or stop it")
        # two judges that keep each other out must not look at the same moments for ever
        time.sleep(random.uniform(0.5 * LOOK_S, 1.5 * LOOK_S))


@contextmanager
def _opened(path: Path, device: str) -> Iterator[int]:
    """Open a lock file of any user; make it if there is none."""
    try:
        descriptor = _open(path)
    except OSError as error:
        raise DeviceError(
            f"cannot lock device {device} with {path}: {_remedy(path, error)}"
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DeviceError(
                f"cannot lock device {device} with {path}: it is no plain file; {_owner(path)}"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(10):
        for how in (os.O_RDWR, os.O_RDONLY):  # the latter suffices for a lock
            try:
                return os.open(path, flags | how)
            except (PermissionError, IsADirectoryError):
                if how == os.O_RDONLY:
                    raise
            except FileNotFoundError:
                break
        try:
            # in folders that all users write to, the kernel refuses to create over a file of
            # another user
            made = os.open(path, flags | os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            continue  # another judge was faster
        os.fchmod(made, 0o666)  # whatever the umask: others must be able to open it
        return made
    return os.open(path, flags | os.O_RDWR)


def _remedy(path: Path, error: OSError) -> str:
    if path.is_symlink():
        return f"it is a link; {_owner(path)}"
    return f"{error.strerror}; {_owner(path)}"


def _owner(path: Path) -> str:
    try:
        return f"user {_user(path.lstat().st_uid)} must remove it"
    except OSError:
        return f"make {path.parent} writable"


def _user(uid: int | None) -> str:
    if uid is None:  # the holder has just ended
        return "unknown"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_words(descriptor: int) -> None:
    """Write the holder's process and user into the lock file, where the file may be written."""
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDWR:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()} {_user(os.getuid())}\n".encode(), 0)


def _words(descriptor: int) -> str:
    """Return what the holder has written of itself, or "unknown" if it has not that form."""
    said = os.pread(descriptor, 100, 0).decode("ascii", "replace").split()
    if not said or not said[0].isdecimal():
        return "unknown"
    is_other = len(said) > 1 and said[1].isprintable() and said[1] != _user(os.getuid())
    return f"{said[0]} of user {said[1]}" if is_other else said[0]


def _locks_out_others(descriptor: int) -> bool:
    """Lock this user's byte, unless another user's byte is locked; return whether it is locked.

    The own byte is locked before others are looked at: of two users that lock at the same time, at
    least one sees the other.
    """
    _ask(descriptor, fcntl.F_OFD_SETLK, fcntl.F_RDLCK, os.getuid(), 1)
    if _other_user(descriptor) is None:
        return True
    _ask(descriptor, fcntl.F_OFD_SETLK, fcntl.F_UNLCK, os.getuid(), 1)
    return False


def _other_user(descriptor: int) -> int | None:
    """Return the id of another user with a locked byte, or None."""
    uid = os.getuid()
    for start, length in ((0, uid), (uid + 1, NUM_USERS - uid)):
        if length:  # 0 would mean: to the end
            kind, first = _ask(descriptor, fcntl.F_OFD_GETLK, fcntl.F_WRLCK, start, length)
            if kind != fcntl.F_UNLCK:
                return first
    return None


def _ask(descriptor: int, what: int, kind: int, start: int, length: int) -> tuple[int, int]:
    """Return type and first byte of the lock that the kernel answers with."""
    asked = _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)
    told = _FLOCK.unpack(fcntl.fcntl(descriptor, what, asked))
    return told[0], told[2]
