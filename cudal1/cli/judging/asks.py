"""The options of `cudal1 judge` as its two ways take them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OfMany:
    """Options that only a file of candidates, or a suite's references, can have."""

    suite: str | None
    sizes: Path | None
    out: Path | None
    baselines: str | None
    cluster: str | None


@dataclass(frozen=True)
class Asks:
    """Options for one candidate and for many."""

    timing: bool
    wait_s: float
    as_json: bool
    invariants: bool
    inputs: Path | None = None
    """File with example inputs of a problem that is a class of a module."""
    folder: Path | None = None
    """Folder that holds the class's package; None where it is installed."""
