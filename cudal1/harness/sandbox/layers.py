"""Name the layers that can stand around a worker, what each keeps out, and which judging needs.

Threat: a machine that grants few layers, where verdicts would be given all the same without notice.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from cudal1.errors import SandboxError

NAMESPACES = (
    "allow namespaces: run as root with CAP_SYS_ADMIN, or permit unprivileged user namespaces "
    "(sysctl user.max_user_namespaces; on Ubuntu kernel.apparmor_restrict_unprivileged_userns=0; "
    "in Docker --security-opt seccomp=unconfined)"
)
PROCESSOR = "use Linux on x86-64 or AArch64, with CONFIG_SECCOMP_FILTER"


@dataclass(frozen=True)
class Layer:
    """One kind of confinement."""

    keeps_out: str
    remedy: str
    """The remedy where the layer is missing."""


LAYERS: dict[str, Layer] = {
    "fork": Layer("what an earlier candidate left in the process", "none needed: always there"),
    "empty_environment": Layer("keys and tokens of the judge's environment", "none needed"),
    "own_pids": Layer(
        "seeing or signalling other processes; children that outlive the worker", NAMESPACES
    ),
    "own_network": Layer("the network and abstract sockets", NAMESPACES),
    "own_ipc": Layer("System V memory and message queues of others", NAMESPACES),
    "own_proc": Layer("what /proc tells of other processes", NAMESPACES),
    "pid_limit": Layer("fork bombs", "use Linux 6.14 or newer, with namespaces"),
    "read_only_files": Layer(
        "writing to files of others", f"use Linux 5.12 or newer; {NAMESPACES}"
    ),
    "private_folder": Layer("files that outlive the worker", NAMESPACES),
    "rlimits": Layer("memory, files, processor time without end, for each process", "none needed"),
    "no_capabilities": Layer("root's powers", "use a Linux kernel with capabilities"),
    "no_new_privs": Layer("set-uid programs", "use Linux 3.5 or newer"),
    "seccomp": Layer(
        "sockets, tracing, mounts, namespaces, other cores, io_uring, waking by timer", PROCESSOR
    ),
    "own_devices": Layer(
        "disks, terminals, GPUs of others that the driver tells apart, and other nodes of /dev",
        NAMESPACES,
    ),
    "freezer": Layer(
        "work between its own bursts, while its rival is timed",
        f"{PROCESSOR}; with namespaces also /proc must be mountable",
    ),
    "landlock": Layer(
        "reading files of the user who judges: keys, the ledger, other candidates",
        "use Linux 5.13 or newer with `landlock` in /sys/kernel/security/lsm (boot option lsm=)",
    ),
    "bubblewrap": Layer(
        "seeing the user's files at all, for what forks the workers too",
        "install bubblewrap (`apt-get install bubblewrap`), where namespaces are allowed",
    ),
    "cgroup": Layer(
        "memory and processes of all of a worker's processes together",
        "judge as root, or in a control group that is delegated with memory and pids",
    ),
    "outputs_in_place": Layer(
        "being credited, on a CPU, the harness's own store of an output that a candidate saves",
        "let a parent read its children's memory (sysctl kernel.yama.ptrace_scope=1 or 0)",
    ),
}

MINIMUM: tuple[tuple[str, ...], ...] = (
    ("empty_environment",),
    ("rlimits",),
    ("no_capabilities",),
    ("no_new_privs",),
    ("seccomp",),
    ("freezer",),
    ("landlock", "bubblewrap"),
)
"""Groups of layers: one layer of each group must hold, else a verdict could be bought or a secret
read.

The other layers strengthen these, or keep out what a group here keeps out as well.
"""


def missing(layers: Collection[str], minimum: tuple[tuple[str, ...], ...] = MINIMUM) -> list[str]:
    """Return the groups of the minimum without an active layer, as text."""
    return [" or ".join(group) for group in minimum if not set(group) & set(layers)]


def require(layers: Collection[str], minimum: tuple[tuple[str, ...], ...] = MINIMUM) -> None:
    """Check that the minimum holds.

    Raises:
        SandboxError: the minimum does not hold.
    """
    lacking = missing(layers, minimum)
    if lacking:
        remedy = LAYERS[lacking[0].split(" or ")[0]].remedy
        raise SandboxError(
            f"too little stands around a worker on this machine: no {', no '.join(lacking)}; "
            f"{remedy}; or set protocol.unsafe: true, which marks every verdict"
        )
