"""Put limits around a worker before any candidate code runs.

Threat: code that forks, fills memory or disk, reads the judge's memory, writes to our files, talks
to the network, kills other processes, or leaves its core to compute on two. Each layer is taken
where kernel and user allow it, and named only when it holds.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
from pathlib import Path

from cudal1.harness.shared import places
from cudal1.harness.worker import landlock, seccomp

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = (
    0x00020000,
    0x08000000,
    0x10000000,
    0x20000000,
    0x40000000,
)
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 1 << 5
MS_BIND, MS_REC, MS_PRIVATE = 1 << 12, 1 << 14, 1 << 18
MNT_DETACH = 2
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
PR_SET_DUMPABLE, PR_SET_NO_NEW_PRIVS = 4, 38
PR_SET_PTRACER = 0x59616D61
CAPABILITY_VERSION_3 = 0x20080522
MAX_FILE_BYTES = 256 << 20
MAX_FOLDER_BYTES = 512 << 20
SHARED = b"size=64m,mode=1777"
"""Mount options of a worker's /dev/shm, and of its /tmp."""
TMP = Path("/tmp")
MAX_OPEN_FILES = 256
MAX_PROCESSES = 512
PID_MAX = 4096
"""Largest process number in a worker's namespace. `MAX_PROCESSES` limits how many processes there
may be. A process that starts and ends unseen shows by its number, so numbers must not come round
within a burst (`warden`)."""
OWN_PID_MAX = (6, 14)
"""First kernel version with a `pid_max` for each namespace. An older kernel has one for the whole
machine, which must be left alone."""

libc = ctypes.CDLL(None, use_errno=True)


def unshare() -> set[str]:
    """Make the namespaces that this kernel and user may make; return the layers that they give."""
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        if libc.unshare(CLONE_NEWUSER) != 0:
            return set()
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
            Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    if libc.unshare(CLONE_NEWNS) == 0:
        libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
    wanted = {"own_pids": CLONE_NEWPID, "own_network": CLONE_NEWNET, "own_ipc": CLONE_NEWIPC}
    return {layer for layer, flag in wanted.items() if libc.unshare(flag) == 0}


def own_mounts(layers: set[str], nodes: list[str]) -> set[str]:
    """Give the worker's namespaces their own /proc, and a /dev that holds these nodes.

    A CUDA driver needs to find itself in /proc. It keeps open the GPUs that it finds in /dev.
    Nothing can be added to this /dev, because a driver run by root may make nodes that it misses.
    Returns the layers that hold.
    """
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    if "own_pids" not in layers or libc.mount(b"proc", b"/proc", b"proc", flags, None) != 0:
        return set()
    return {"own_proc", "own_devices"} if _own_devices(nodes) else {"own_proc"}


def confine_files(folder: str, layers: set[str]) -> tuple[str, set[str]]:
    """Make one folder writable for the worker; return the folder and the layers that hold.

    A private folder has one name in every worker (`places.HOME`), because compilers note where they
    keep their output. Where none can be made, the folder is `folder`.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    gained = {"private_folder"}
    nodev = MS_NOSUID | MS_NODEV
    if "own_proc" not in layers:
        return folder, gained
    with contextlib.suppress(OSError):
        if _kernel() >= OWN_PID_MAX:
            Path("/proc/sys/kernel/pid_max").write_text(str(PID_MAX))
            gained.add("pid_limit")
    read_only = (ctypes.c_uint64 * 4)(MOUNT_ATTR_RDONLY, 0, 0, 0)
    wanted, size = ctypes.byref(read_only), ctypes.sizeof(read_only)
    if libc.syscall(MOUNT_SETATTR, AT_FDCWD, b"/", AT_RECURSIVE, wanted, size) == 0:
        gained.add("read_only_files")
        libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", nodev, SHARED)
        options = f"size={MAX_FOLDER_BYTES},nr_inodes=16384,mode=700".encode()
        with contextlib.suppress(OSError):
            Path(places.HOME).mkdir()
        if libc.mount(b"tmpfs", places.HOME.encode(), b"tmpfs", nodev, options) == 0:
            return places.HOME, gained
        gained.discard("private_folder")
    return folder, gained


def own_tmp(home: str) -> list[Path]:
    """Give the worker an empty /tmp of its own; return it, or nothing where there is none.

    Sources name it where they write what they compile. It stays as it is where a file below it is
    needed, as in a checkout there.
    """
    is_private = home == places.HOME
    if not is_private or any(path.resolve().is_relative_to(TMP) for path in places.readable()):
        return []
    made = libc.mount(b"tmpfs", str(TMP).encode(), b"tmpfs", MS_NOSUID | MS_NODEV, SHARED)
    return [TMP] if made == 0 else []


def _own_devices(wanted: list[str]) -> bool:
    """Replace /dev by one that holds harmless nodes alone; a failure leaves /dev unchanged."""
    kept: dict[str, int] = {}
    for name in wanted:
        with contextlib.suppress(FileNotFoundError):
            kept[name] = os.open(f"/dev/{name}", os.O_PATH)
    nodev = MS_NOSUID | MS_NODEV
    sealed = MS_REMOUNT | MS_BIND | MS_RDONLY | nodev
    try:
        if libc.mount(b"tmpfs", b"/dev", b"tmpfs", nodev, b"size=64k,mode=755") != 0:
            return False
        if _filled(kept) and libc.mount(None, b"/dev", None, sealed, None) == 0:
            return True
        libc.umount2(b"/dev", MNT_DETACH)
        return False
    finally:
        for descriptor in kept.values():
            os.close(descriptor)


def _filled(devices: dict[str, int]) -> bool:
    """Put devices, given by descriptors of the old nodes, into a /dev that is empty."""
    try:
        Path("/dev/shm").mkdir()
        if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", MS_NOSUID | MS_NODEV, SHARED) != 0:
            return False
        Path("/dev/fd").symlink_to("/proc/self/fd")
        for name, descriptor in devices.items():
            Path(f"/dev/{name}").touch()
            source = f"/proc/self/fd/{descriptor}".encode()
            if libc.mount(source, f"/dev/{name}".encode(), None, MS_BIND, None) != 0:
                return False
    except OSError:
        return False
    return True


def limit(*, memory_bytes: int, cpu_s: int | None, device: str) -> set[str]:
    """Bound what the process may take; return the layers that hold."""
    with Path("/proc/self/statm").open() as statm:
        mapped, _, _, _, _, data, _ = (
            int(n) * resource.getpagesize() for n in statm.read().split()
        )
    # a CUDA driver reserves more addresses than any limit would leave it
    on_gpu = device == "cuda"
    limits = {
        (resource.RLIMIT_DATA if on_gpu else resource.RLIMIT_AS): (data if on_gpu else mapped)
        + memory_bytes,
        resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
        resource.RLIMIT_NPROC: MAX_PROCESSES,
        resource.RLIMIT_NOFILE: MAX_OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if cpu_s is not None:
        limits[resource.RLIMIT_CPU] = cpu_s
    for which, bound in limits.items():
        hard = resource.getrlimit(which)[1]
        bounded = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
        resource.setrlimit(which, (bounded, bounded))
    return {"rlimits"}


def renounce(writable: list[Path], layers: set[str], nodes: list[str]) -> set[str]:
    """Give up all privileges, most files and system calls for good; return the layers that hold.

    Args:
        writable: the folders that can be written to, besides /dev/shm.
        layers: the layers that hold already.
        nodes: the nodes in /dev that may be used.
    """
    gained: set[str] = set()
    if drop_capabilities():
        gained.add("no_capabilities")
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return gained
    gained.add("no_new_privs")
    if landlock.restrict(
        readable=places.readable(),
        listable=[places.DEV],
        writable=[*writable, places.DEV / "shm"],
        devices=[places.DEV / name for name in nodes],
    ):
        gained.add("landlock")
    if seccomp.install(keep_group="own_pids" not in layers):
        gained.add("seccomp")
        # the warden finds processes by their numbers, or by the group that none can leave
        if "own_proc" in layers or "own_pids" not in layers:
            gained.add("freezer")
    return gained


def drop_capabilities() -> bool:
    """Give up root's powers; return whether that holds."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    return libc.capset(ctypes.byref(header), ctypes.byref((ctypes.c_uint32 * 6)())) == 0


def set_readable(readable: bool) -> None:
    """Let other processes of the same user read this one's memory and its part of /proc, or not.

    The judge is a sibling of the process that forks workers. Where Yama lets only ancestors read, a
    worker admits every process: it has nothing to hide. The system-call filter limits what other
    workers may do.
    """
    libc.prctl(PR_SET_DUMPABLE, int(readable), 0, 0, 0)
    everybody = ctypes.c_ulong(-1)
    libc.prctl(PR_SET_PTRACER, everybody if readable else ctypes.c_ulong(0), 0, 0, 0)


def keep_only(descriptor: int, needed: set[int]) -> int:
    """Close all descriptors but one and those a driver needs; lead standard streams nowhere."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    kept = sorted({0, 1, 2, descriptor} | needed)
    for number, following in zip(kept, [*kept[1:], 65536], strict=True):
        os.closerange(number + 1, following)
    return descriptor


def _kernel() -> tuple[int, int]:
    major, minor = os.uname().release.split(".")[:2]
    return int(major), int("".join(c for c in minor if c.isdigit()) or 0)
