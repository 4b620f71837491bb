"""A system-call filter for workers: nothing that reaches other processes, mounts or other cores.

Sockets are refused too, though a worker has a network of its own: a socket in the file system, such
as a container service's, is reached through the name of a file.

Refused calls fail with EPERM; `clone3` with ENOSYS, so that libraries fall back to `clone`, whose
flags a filter can read. A list of what is refused, not of what is allowed: torch and compilers
need most.
"""

from __future__ import annotations

import ctypes
import os

PR_SET_SECCOMP, MODE_FILTER = 22, 2
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
EPERM, ENOSYS = 1, 38
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NR, ARCH, FIRST_ARGUMENT = 0, 4, 16
NEW_NAMESPACES = 0x7E020000
X32_BIT = 0x40000000

_SAME_EVERYWHERE = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "pidfd_getfd": 438,
    "mount_setattr": 442,
}  # fmt: skip
_X86_64 = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "bpf": 321,
    "perf_event_open": 298, "userfaultfd": 323, "add_key": 248, "request_key": 249, "keyctl": 250,
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "unshare": 272, "setns": 308,
    "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313,
    "delete_module": 176, "open_by_handle_at": 304, "reboot": 169, "seccomp": 317,
    "socket": 41, "connect": 42,
    "sched_setaffinity": 203, "sched_setscheduler": 144, "sched_setattr": 314,
}  # fmt: skip
_AARCH64 = {
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "bpf": 280,
    "perf_event_open": 241, "userfaultfd": 282, "add_key": 217, "request_key": 218, "keyctl": 219,
    "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "unshare": 97, "setns": 268,
    "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273,
    "delete_module": 106, "open_by_handle_at": 265, "reboot": 142, "seccomp": 277,
    "socket": 198, "connect": 203,
    "sched_setaffinity": 122, "sched_setscheduler": 119, "sched_setattr": 274,
}  # fmt: skip
_MACHINES = {
    "x86_64": (0xC000003E, _X86_64, 56, 435),
    "aarch64": (0xC00000B7, _AARCH64, 220, 435),
}
"""Audit architecture, refused calls, and the numbers of clone and clone3."""


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16), ("jump_true", ctypes.c_uint8), ("jump_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )  # fmt: skip


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def install() -> bool:
    """Put the filter around this process for good; False where the machine is not a known one."""
    known = _MACHINES.get(os.uname().machine)
    if known is None:
        return False
    program = _assemble(*known)
    array = (_Instruction * len(program))(*(_Instruction(*step) for step in program))
    whole = _Program(len(program), array)
    libc = ctypes.CDLL(None, use_errno=True)
    return libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.byref(whole), 0, 0) == 0


def _assemble(
    arch: int, refused: dict[str, int], clone: int, clone3: int
) -> list[tuple[int, int, int, int]]:
    refuse = (RETURN, 0, 0, ERRNO | EPERM)
    program = [
        (LOAD, 0, 0, ARCH), (EQUAL, 1, 0, arch), refuse,
        (LOAD, 0, 0, NR), (AT_LEAST, 0, 1, X32_BIT), refuse,
        (EQUAL, 0, 1, clone3), (RETURN, 0, 0, ERRNO | ENOSYS),
    ]  # fmt: skip
    for number in (*refused.values(), *_SAME_EVERYWHERE.values()):
        program += [(EQUAL, 0, 1, number), refuse]
    program += [
        (EQUAL, 0, 3, clone), (LOAD, 0, 0, FIRST_ARGUMENT), (ANY_BIT, 0, 1, NEW_NAMESPACES), refuse,
        (RETURN, 0, 0, ALLOW),
    ]  # fmt: skip
    return program
