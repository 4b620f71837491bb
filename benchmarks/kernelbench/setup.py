"""Describe what `benchmarks.kernelbench` compares, and the places of its results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ablation.memory import Lines
from benchmarks.kernelbench.candidates import Entry
from cudal1.errors import ConfigError
from cudal1.harness.device.device import Device
from cudal1.problem import Problem
from cudal1.protocol import EvalProtocol
from cudal1.suite import kernelbench


@dataclass(frozen=True)
class Bench:
    """The sides to compare, and their places."""

    checkout: Path
    state: Path
    device: Device
    protocols: dict[str, EvalProtocol]
    """Our protocols, by name; the verdicts of the first one are compared with theirs."""
    candidates: Sequence[Entry]
    sizes: Path | None = None
    """Sizes of the problems on a CPU: for a rehearsal of our side."""
    arch: str = "Hopper"
    """KernelBench's name of the GPU's architecture, for its script."""

    @property
    def candidates_file(self) -> Path:
        """Return the file of candidates that `cudal1 judge` takes."""
        return self.state / "candidates.jsonl"

    def ours_file(self, protocol: str) -> Path:
        """Return the file of our wall time under a protocol; it exists after the command's end."""
        return self.state / f"ours-{protocol}.json"

    def verdicts_file(self, protocol: str) -> Path:
        """Return the file of our verdicts under a protocol."""
        return self.state / f"ours-{protocol}" / "verdicts.jsonl"

    @property
    def theirs_file(self) -> Path:
        """Return the file of the peer's lines."""
        return self.state / "theirs.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        """Return the lines that the peer has written."""
        return list(Lines(self.theirs_file)) if self.theirs_file.exists() else []

    def theirs(self) -> dict[str, dict[str, Any]]:
        """Return the peer's lines on candidates, by name."""
        return {line["name"]: line for line in self.lines() if "name" in line}


def problems_of(bench: Bench) -> dict[str, Problem]:
    """Return the problem of each candidate, by the candidate's name.

    Raises:
        ConfigError: the checkout has another one, or none, in its place.
    """
    loaded = kernelbench.load(
        bench.checkout, revision=None, sizes=bench.sizes, device_class=bench.device.device_class
    )
    by_place = {(problem.level, problem.number): problem for problem in loaded}
    found: dict[str, Problem] = {}
    for entry in bench.candidates:
        place = entry.place
        problem = by_place.get((place.level, place.number))
        if problem is None or problem.name != place.name:
            raise ConfigError(
                f"{bench.checkout}: level {place.level} problem {place.number} is "
                f"{problem.name if problem else 'absent'}, not {place.name}: another revision?"
            )
        found[entry.name] = problem
    return found
