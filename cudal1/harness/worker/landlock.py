"""Put a barrier around files that needs no namespace and no privilege: Landlock (Linux 5.13).

Threat: a worker runs under the judge's user. It could read that user's home folder, ledger and
other candidates, and write them into the text of its failure. A file that is not listed cannot be
opened, whatever its permissions. Where the kernel can, connecting by TCP, abstract sockets and
signals to processes outside are refused, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Numbers of system calls, the same on every machine."""
VERSION, PATH_BENEATH = 1, 1
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ = EXECUTE | READ_FILE | READ_DIR
USE = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
OF_FILES = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
"""Rights that a rule may give for anything but a folder."""
SINCE = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV))
"""Versions of the interface, and the rights over files that came with each."""
TCP_SINCE, BIND_AND_CONNECT = 4, 3
SCOPES_SINCE, ABSTRACT_SOCKETS_AND_SIGNALS = 6, 3

libc = ctypes.CDLL(None, use_errno=True)


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def restrict(
    *,
    readable: Iterable[Path],
    listable: Iterable[Path],
    writable: Iterable[Path],
    devices: Iterable[Path],
) -> bool:
    """Leave this process and its children only these files; return whether that holds.

    Args:
        readable: files and folders to read and execute below.
        listable: folders to list.
        writable: folders to do anything below.
        devices: nodes to read, write and control.
    """
    version = libc.syscall(CREATE_RULESET, None, 0, VERSION)
    if version < 1:
        return False
    handled = sum(rights for since, rights in SINCE if version >= since)
    # a kernel knows the fields up to its own version, and refuses later ones that are not 0
    rules = (ctypes.c_uint64 * 3)(
        handled,
        BIND_AND_CONNECT if version >= TCP_SINCE else 0,
        ABSTRACT_SOCKETS_AND_SIGNALS if version >= SCOPES_SINCE else 0,
    )
    ruleset = libc.syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.sizeof(rules), 0)
    if ruleset < 0:
        return False
    try:
        for paths, rights in (
            (readable, READ),
            (listable, READ_DIR),
            (writable, handled),
            (devices, USE),
        ):
            for path in paths:
                with contextlib.suppress(FileNotFoundError):
                    _allow(ruleset, path, rights & handled)
        return libc.syscall(RESTRICT_SELF, ruleset, 0) == 0
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= OF_FILES
        rule = _PathBeneath(rights, descriptor)
        libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0)
    finally:
        os.close(descriptor)
