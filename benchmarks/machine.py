"""What a measurement was made on: written beside every result."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path


def cpu_name() -> str:
    """As the kernel has it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} cores of {names[0]}" if names else platform.machine()


def versions(*packages: str) -> dict[str, str]:
    """Of Python and of packages."""
    return {"python": platform.python_version()} | {name: version(name) for name in packages}
