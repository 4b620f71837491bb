"""Describe the machine of a measurement, for every result file."""

from __future__ import annotations

import contextlib
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def cpu_name() -> str:
    """Return the kernel's name of the CPU, and how many of its cores we may use if not all."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    if not names:
        return platform.machine()
    ours = len(os.sched_getaffinity(0))
    count = f"{ours} of {len(names)}" if ours < len(names) else f"{ours}"
    return f"{count} cores of {names[0]}"


def versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python and of those packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found
