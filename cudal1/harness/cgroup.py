"""A control group around each worker: memory and processes of all that it starts, together.

Threat: limits of a process do not bound its children. Taken where the judge may make groups with
both controllers, in the unified hierarchy or in the older ones; without them the warden sums up
what it sees, and the kernel's limits of each process hold.
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
"""As many as a worker's own process numbers allow, its keeper and its warden."""
SLACK_BYTES = 256 << 20
"""For pages of the interpreter that forks copy, and for cached files."""
REMOVAL_LIMIT_S = 0.5
"""A group can be removed once its last process is reaped."""
_numbers = itertools.count()


@dataclass(frozen=True)
class Cage:
    """The groups of one worker; none where none can be made."""

    groups: tuple[Path, ...]

    @classmethod
    def make(cls) -> Cage:
        """New groups; processes enter through their doors."""
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
        """Descriptors; whoever writes 0 to each is in, with all that it starts from then on."""
        with contextlib.ExitStack() as stack:
            yield [
                stack.enter_context((group / "cgroup.procs").open("wb", buffering=0)).fileno()
                for group in self.groups
            ]

    def bound(self, memory_bytes: int) -> None:
        """Limit the memory, swap included, to so much more than is taken now.

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
                ("memory.max", limit), ("memory.swap.max", "0"),
                ("memory.limit_in_bytes", limit), ("memory.memsw.limit_in_bytes", limit),
            ):  # fmt: skip
                if (group / name).exists():
                    (group / name).write_text(value)

    def close(self) -> None:
        """Remove the groups, whose processes are dead."""
        deadline = time.monotonic() + REMOVAL_LIMIT_S
        for group in self.groups:
            while group.exists() and time.monotonic() < deadline:
                with contextlib.suppress(OSError):
                    group.rmdir()
                    break
                time.sleep(0.001)


def parents(root: Path = Path("/")) -> list[Path]:
    """Where groups can be made that have both controllers; empty where they cannot.

    Args:
        root: where the system's files are; another one for tests.
    """
    own = {
        name: path
        for _, names, path in (
            line.split(":", 2)
            for line in (root / "proc/self/cgroup").read_text().splitlines()
        )
        for name in names.split(",")
    }  # fmt: skip
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
    """Our own group or one above whose children have the controllers; in the unified hierarchy."""
    for group in (mount / own, *(mount / own).parents):
        if not group.is_relative_to(mount):
            break
        with contextlib.suppress(OSError):
            if set(CONTROLLERS) <= set((group / "cgroup.subtree_control").read_text().split()):
                return [group]
    return []


def _inside(path: str, mounted_root: str) -> str:
    """A group's path below its mount, of which a container may see only a part."""
    return path.removeprefix(mounted_root).lstrip("/")


def _sweep(parent: Path) -> None:
    """Remove what judges left that were killed."""
    for group in parent.glob("cudal1-*-*"):
        judge = group.name.split("-")[1]
        if judge.isdecimal() and not Path(f"/proc/{judge}").exists():
            with contextlib.suppress(OSError):
                group.rmdir()
