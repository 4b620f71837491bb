"""Keep each training step's numbers, one line a step, to explain a run that came out badly.

A line has the trainer's numbers (loss, divergence, entropy, share of clipped tokens, norm of the
gradient) and the world's (`ContrastiveWorld`). A step that is done again after a kill replaces its
earlier line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.ablation.memory import Lines

SUFFIX = ".steps.jsonl"
Numbers = dict[str, float]


def path_of(state: Path, name: str) -> Path:
    """Return the file of a policy's training steps; `name` is such as `sft-1`."""
    return state / "training" / f"{name}{SUFFIX}"


class Steps:
    """The steps of one training run."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._steps: dict[int, Numbers] = {line["step"]: line for line in self._lines}

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Note a finished step; a trainer's last numbers, without a loss, are of no step."""
        if "loss" in numbers:
            self._steps[step] = {**numbers, "step": step}
            self._lines.add(self._steps[step])

    @property
    def in_order(self) -> Sequence[Numbers]:
        """Return all steps, the first one first."""
        return [self._steps[step] for step in sorted(self._steps)]
