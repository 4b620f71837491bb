"""Choose sizes of a checkout's problems for a CPU by the rule of `cudal1.suite.halving`."""

from __future__ import annotations

from pathlib import Path

from cudal1.errors import SuiteError
from cudal1.suite.halving import Size, shrunk
from cudal1.suite.loader import read_source, short_name


def sizes_of(checkout: Path, largest: int) -> dict[str, dict[str, Size]]:
    """Return the constants to replace in each problem of a checkout, as a sizes file has them."""
    root = checkout / "KernelBench" if (checkout / "KernelBench").is_dir() else checkout
    found: dict[str, dict[str, Size]] = {}
    for file in sorted(root.glob("level[0-9]/[0-9]*_*.py")):
        try:
            found[short_name(file)] = shrunk(read_source(file), largest)
        except SuiteError:  # admission reports the fault
            continue
    return found
