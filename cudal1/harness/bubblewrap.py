"""The process that forks workers, inside bubblewrap where that is installed and works.

Threat: what a worker's own barriers might miss. The user's files are not there at all, the system's
cannot be written to, and network, System V memory, host name and control groups are others. Not
its process numbers: the judge ends what it starts, and each worker has a namespace of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from cudal1.harness import places


def prefix(folder: str, nodes: Iterable[str]) -> list[str]:
    """What to put before a command so that it runs inside; empty where bubblewrap is missing.

    Args:
        folder: the one that stays writable, under its own name.
        nodes: what is in /dev besides what is always there.
    """
    program = shutil.which("bwrap", path=places.PATH)
    if program is None:
        return []
    command = [
        program, "--die-with-parent", "--unshare-ipc", "--unshare-net", "--unshare-uts",
        "--unshare-cgroup-try",
    ]  # fmt: skip
    if os.geteuid() == 0:
        command += ["--cap-add", "ALL"]  # to make each worker's namespaces; it gives them up itself
    command += ["--tmpfs", "/tmp", "--dev", "/dev"]
    for name in nodes:
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for option, path in _bindings(places.readable()):
        command += [option, *path]
    # writable, since a worker's numbers of users are written there, and a worker mounts its own
    command += ["--bind", "/proc", "/proc", "--bind", folder, folder, "--chdir", folder]
    return [*command, "--"]


def _bindings(paths: Iterable[Path]) -> Iterable[tuple[str, tuple[str, str]]]:
    """How each path comes to be inside; one that is reached by links is there by both names."""
    for path in paths:
        if path == Path("/proc"):
            continue
        target = path.resolve()
        if path.is_symlink() and path.parent == Path("/"):
            yield "--symlink", (str(path.readlink()), str(path))
            continue
        for name in dict.fromkeys((path, target)):
            yield "--ro-bind", (str(target), str(name))
