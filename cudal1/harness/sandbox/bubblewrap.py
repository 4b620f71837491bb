"""Wrap the process that forks workers in bubblewrap, where that is installed and works.

Threat: what a worker's own barriers might miss. Inside, the user's files do not exist, and the
system's files cannot be written to. Network, System V memory, host name and control groups are
separate. Process numbers are not: the judge ends what it starts, and each worker has a PID
namespace of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from cudal1.harness.shared import places


def prefix(folder: str, nodes: Iterable[str]) -> list[str]:
    """Return the words to put before a command so that it runs inside; empty without bubblewrap.

    Args:
        folder: the folder that stays writable, under its own name.
        nodes: nodes in /dev besides those that are always there.
    """
    program = shutil.which("bwrap", path=places.PATH)
    if program is None:
        return []
    command = [
        program,
        "--die-with-parent",
        "--unshare-ipc",
        "--unshare-net",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if os.geteuid() == 0:
        command += ["--cap-add", "ALL"]  # to make each worker's namespaces; it gives them up itself
    command += ["--tmpfs", "/tmp", "--dev", "/dev"]
    for name in nodes:
        command += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for option, path in _bindings(places.readable()):
        command += [option, *path]
    # writable, since a worker's user id map is written there, and a worker mounts its own /proc
    command += ["--bind", "/proc", "/proc", "--bind", folder, folder, "--chdir", folder]
    return [*command, "--"]


def _bindings(paths: Iterable[Path]) -> Iterable[tuple[str, tuple[str, str]]]:
    """Yield the option and the names that put each path inside.

    A path that is reached by links is there by both names.
    """
    for path in paths:
        if path == Path("/proc"):
            continue
        target = path.resolve()
        if path.is_symlink() and path.parent == Path("/"):
            yield "--symlink", (str(path.readlink()), str(path))
            continue
        for name in dict.fromkeys((path, target)):
            yield "--ro-bind", (str(target), str(name))
