"""List the files that a Python process with torch and a compiler needs and may read.

Both barriers around files, Landlock and bubblewrap, let these be read and nothing else. Threat: the
folder of the package may hold the ledger and other candidates beside it, the home folder the
interpreter beside keys. So folders are named as narrowly as they can be.
"""

from __future__ import annotations

import sys
from pathlib import Path

HOME = "/dev/shm/cudal1"
"""Home folder of each worker with a file system of its own. It has one name on every machine:
compilers note where they keep what they made."""
PATH = f"/usr/local/bin:/usr/bin:/bin:{Path(sys.executable).absolute().parent}"
"""Folders in which programs are looked for, whatever the judge's own environment says. The
interpreter's folder, where pip puts ninja, comes last."""
EXTENSIONS = Path(__file__).resolve().parents[1] / "worker" / "extensions"
"""Folder of the programs that PyTorch calls in a worker to compile an extension."""
SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/proc", "/sys")
"""Folders of the system's programs and libraries; also of what a driver puts there, such as
/usr/local/cuda."""
SETTINGS = (
    "alternatives",
    "group",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "timezone",
)
"""Names in /etc that may be read; keys and passwords are in /etc, too."""
PREFIX_PARTS = (
    "bin",
    "include",
    "lib",
    "lib64",
    "libexec",
    "nvvm",
    "pyvenv.cfg",
    "share",
    "targets",
)
"""Names in an interpreter's folder that may be read: a virtual environment may be a user's whole
working folder."""
DEV = Path("/dev")
DEVICES = ("null", "zero", "full", "random", "urandom")
"""Nodes that programs expect in /dev; a disk, a kernel-based virtual machine or a terminal is not
among them."""

CUDA_DEVICES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Nodes that a CUDA driver opens, beside those of the GPUs themselves."""


def devices(device: str, node: str | None) -> list[str]:
    """Return the existing names in /dev that a worker on a device of that class may use.

    Args:
        device: its class.
        node: a GPU's own; without it, those of all GPUs.
    """
    wanted = list(DEVICES)
    if device == "cuda":
        every = [path.name for path in DEV.glob("nvidia[0-9]*")]
        wanted += [*CUDA_DEVICES, *([node] if node in every else every)]
    return [name for name in wanted if (DEV / name).exists()]


def readable() -> list[Path]:
    """Return the existing paths that may be read and executed."""
    harness = Path(__file__).resolve().parents[1]
    paths = [Path(name) for name in SYSTEM]
    paths += [Path("/etc") / name for name in SETTINGS]
    for prefix in dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix)):
        paths += [Path(prefix) / part for part in PREFIX_PARTS]
    paths += [Path(p) for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    paths += [harness / name for name in ("__init__.py", "shared", "worker")]
    paths.append(harness.parent / "__init__.py")
    return [path for path in dict.fromkeys(paths) if path.exists()]
