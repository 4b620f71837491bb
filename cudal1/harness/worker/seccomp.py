"""Filter workers' system calls: none may reach other processes, mounts or other cores.

Sockets are refused too, though a worker has a network of its own. A socket in the file system, such
as a container service's, is reached through the name of a file. Memory that no process has mapped,
in anonymous files, segments or queues, is refused, because it would not be counted. Calls that make
the kernel send a chosen signal at a later time are refused, because such a SIGCONT wakes a stopped
process. Timers by descriptor are refused: thousands of watchers may wait for one that expires while
other workers are timed on that core.

Refused calls fail with EPERM. `clone3` fails with ENOSYS, so that libraries fall back to `clone`,
which has flags that a filter can read. The filter lists what is refused, not what is allowed,
because torch and compilers need most calls.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

SET_MODE_FILTER, ALL_THREADS = 1, 1
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
SUCCESS = 0
EPERM, ENOSYS = 1, 38
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NR, ARCH, FIRST_ARGUMENT, ARGUMENT_BYTES = 0, 4, 16, 8
NEW_NAMESPACES = 0x7E020000
X32_BIT = 0x40000000
F_SETSIG, PR_SET_PDEATHSIG = 10, 1


@dataclass(frozen=True)
class _Machine:
    """A processor's audit architecture, refused calls, and numbers of calls that need a look."""

    arch: int
    refused: dict[str, int]
    clone: int
    prctl: int
    fcntl: int
    prlimit: int
    leave_group: tuple[int, int]
    """Numbers of setpgid and setsid."""


_CLONE3 = 435
_SAME_EVERYWHERE = {
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "memfd_secret": 447,
}
_X86_64 = {
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "bpf": 321,
    "perf_event_open": 298,
    "userfaultfd": 323,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "mount": 165,
    "umount2": 166,
    "pivot_root": 155,
    "chroot": 161,
    "unshare": 272,
    "setns": 308,
    "kexec_load": 246,
    "kexec_file_load": 320,
    "init_module": 175,
    "finit_module": 313,
    "delete_module": 176,
    "open_by_handle_at": 304,
    "reboot": 169,
    "seccomp": 317,
    "socket": 41,
    "connect": 42,
    "sched_setaffinity": 203,
    "sched_setscheduler": 144,
    "sched_setattr": 314,
    "sched_setparam": 142,
    "setpriority": 141,
    "ioprio_set": 251,
    "timer_create": 222,
    "mq_open": 240,
    "mq_notify": 244,
    "msgget": 68,
    "shmget": 29,
    "memfd_create": 319,
    "timerfd_create": 283,
}
_AARCH64 = {
    "ptrace": 117,
    "process_vm_readv": 270,
    "process_vm_writev": 271,
    "kcmp": 272,
    "bpf": 280,
    "perf_event_open": 241,
    "userfaultfd": 282,
    "add_key": 217,
    "request_key": 218,
    "keyctl": 219,
    "mount": 40,
    "umount2": 39,
    "pivot_root": 41,
    "chroot": 51,
    "unshare": 97,
    "setns": 268,
    "kexec_load": 104,
    "kexec_file_load": 294,
    "init_module": 105,
    "finit_module": 273,
    "delete_module": 106,
    "open_by_handle_at": 265,
    "reboot": 142,
    "seccomp": 277,
    "socket": 198,
    "connect": 203,
    "sched_setaffinity": 122,
    "sched_setscheduler": 119,
    "sched_setattr": 274,
    "sched_setparam": 118,
    "setpriority": 140,
    "ioprio_set": 30,
    "timer_create": 107,
    "mq_open": 180,
    "mq_notify": 184,
    "msgget": 186,
    "shmget": 194,
    "memfd_create": 279,
    "timerfd_create": 85,
}
_MACHINES = {
    "x86_64": _Machine(0xC000003E, _X86_64, 56, 157, 72, 302, (109, 112)),
    "aarch64": _Machine(0xC00000B7, _AARCH64, 220, 167, 25, 261, (154, 157)),
}


class _Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jump_true", ctypes.c_uint8),
        ("jump_false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_uint16), ("instructions", ctypes.POINTER(_Instruction)))


def install(*, keep_group: bool) -> bool:
    """Put the filter around this process for good; return False on an unknown machine.

    The filter holds for threads that a driver has started, too. With `keep_group`, leaving the
    process group appears to succeed and does nothing.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        return False
    program = _assemble(machine, keep_group=keep_group)
    array = (_Instruction * len(program))(*(_Instruction(*step) for step in program))
    whole = _Program(len(program), array)
    libc = ctypes.CDLL(None, use_errno=True)
    call = machine.refused["seccomp"]
    return libc.syscall(call, SET_MODE_FILTER, ALL_THREADS, ctypes.byref(whole)) == 0


def _assemble(machine: _Machine, *, keep_group: bool) -> list[tuple[int, int, int, int]]:
    refuse = (RETURN, 0, 0, ERRNO | EPERM)
    program = [
        (LOAD, 0, 0, ARCH),
        (EQUAL, 1, 0, machine.arch),
        refuse,
        (LOAD, 0, 0, NR),
        (AT_LEAST, 0, 1, X32_BIT),
        refuse,
        (EQUAL, 0, 1, _CLONE3),
        (RETURN, 0, 0, ERRNO | ENOSYS),
    ]
    for number in machine.leave_group if keep_group else ():
        program += [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | SUCCESS)]
    for number in (*machine.refused.values(), *_SAME_EVERYWHERE.values()):
        program += [(EQUAL, 0, 1, number), refuse]
    for number, argument, test, operand in (
        (machine.clone, 0, ANY_BIT, NEW_NAMESPACES),
        (machine.fcntl, 1, EQUAL, F_SETSIG),
        (machine.prctl, 0, EQUAL, PR_SET_PDEATHSIG),
        (machine.prlimit, 0, ANY_BIT, 0xFFFFFFFF),  # by a process number: not even the warden
    ):
        start = FIRST_ARGUMENT + argument * ARGUMENT_BYTES
        program += [
            (EQUAL, 0, 4, number),
            (LOAD, 0, 0, start),
            (test, 0, 1, operand),
            refuse,
            (RETURN, 0, 0, ALLOW),
        ]
    program.append((RETURN, 0, 0, ALLOW))
    return program
