"""Put a control group around each worker: it bounds memory and processes of all that it starts.

Threat: limits of one process do not bound its children. Groups are used where the judge may make
groups with both controllers, in the unified hierarchy or in the older ones. Without groups the
warden sums up what it sees, and the kernel's limits of each process hold.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONTROLLERS = ("memory", "pids")
MAX_THREADS = 520
"""Threads that a worker's group may have: its own process numbers, its keeper and its warden."""
SLACK_BYTES = 256 << 20
"""Bytes for pages of the interpreter that forks copy, and for cached files."""
REMOVAL_LIMIT_S = 0.5
"""Seconds that removing a group may take; it is possible once the group's last process is
reaped."""
_numbers = itertools.count()


@dataclass(frozen=True)
class Cage:
    """The groups of one worker; empty where no group can be made."""

    groups: tuple[Path, ...]

    @classmethod
    def make(cls) -> Cage:
        """Make new groups, which processes enter through their `doors`."""
        made: list[Path] = []
        try:
            for parent in parents():
                _sweep(parent)
                group = parent / f"cudal1-{os.getpid()}-{next(_numbers)}"
                group.mkdir()
                made.append(group)
                if (group / "pids.max").exists():
                    (group / "pids.max").write_text(str(MAX_THREADS))
        except OSError:
            cls(tuple(made)).close()
            return cls(())
        return cls(tuple(made))

    @contextlib.contextmanager
    def doors(self) -> Iterator[list[int]]:
        """Yield one descriptor for each group.

        A process that writes 0 to a descriptor enters the group, with all that it starts later.
        """
        with contextlib.ExitStack() as stack:
            yield [
                stack.enter_context((group / "cgroup.procs").open("wb", buffering=0)).fileno()
                for group in self.groups
            ]

    def bound(self, memory_bytes: int) -> None:
        """Limit the memory, swap included, to so many bytes beyond what is in use.

        Raises:
            OSError: the kernel refuses.
        """
        for group in self.groups:
            taken = sum(
                int((group / name).read_text())
                for name in ("memory.current", "memory.usage_in_bytes")
                if (group / name).exists()
            )
            limit = str(taken + memory_bytes + SLACK_BYTES)
            # the first of each pair must be there; swap is counted only by some kernels
            for name, value in (
                ("memory.max", limit),
                ("memory.swap.max", "0"),
                ("memory.limit_in_bytes", limit),
                ("memory.memsw.limit_in_bytes", limit),
            ):
                if (group / name).exists():
                    (group / name).write_text(value)

    def close(self) -> None:
        """Remove the groups after their processes have died."""
        deadline = time.monotonic() + REMOVAL_LIMIT_S
        for group in self.groups:
            while group.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.001)


def parents(root: Path = Path("/")) -> list[Path]:
    """Return the groups in which groups with both controllers can be made; empty if there are none.

    Args:
        root: the folder of the system's files; another one for tests.
    """
    own = {
        name: path
        for _, names, path in (
            line.split(":", 2) for line in (root / "proc/self/cgroup").read_text().splitlines()
        )
        for name in names.split(",")
    }
    unified: list[Path] = []
    older: dict[str, Path] = {}
    for line in (root / "proc/self/mountinfo").read_text().splitlines():
        place, _, kind = line.partition(" - ")
        mounted_root, mount = place.split()[3:5]
        if kind.startswith("cgroup2 ") and "" in own:
            unified = _delegated(root / mount.lstrip("/"), _inside(own[""], mounted_root))
        elif kind.startswith("cgroup "):
            for name in set(CONTROLLERS) & set(kind.split()[-1].split(",")) & set(own):
                older[name] = root / mount.lstrip("/") / _inside(own[name], mounted_root)
    return unified or ([older[name] for name in CONTROLLERS] if len(older) == 2 else [])


def _delegated(mount: Path, own: str) -> list[Path]:
    """Return our own group, or the nearest above it, with the controllers for its children.

    For the unified hierarchy. Empty if no such group is visible.
    """
    for group in (mount / own, *(mount / own).parents):
        if not group.is_relative_to(mount):
            break
        with contextlib.suppress(OSError):
            if set(CONTROLLERS) <= set((group / "cgroup.subtree_control").read_text().split()):
                return [group]
    return []


def _inside(path: str, mounted_root: str) -> str:
    """Return a group's path below its mount, of which a container may see only a part."""
    return path.removeprefix(mounted_root).lstrip("/")


def _sweep(parent: Path) -> None:
    """Remove groups that killed judges have left."""
    for group in parent.glob("cudal1-*-*"):
        judge = group.name.split("-")[1]
        if judge.isdecimal() and not Path(f"/proc/{judge}").exists():
            with contextlib.suppress(OSError):
                group.rmdir()
