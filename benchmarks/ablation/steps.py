"""What each training step said, one line a step: a run that came out badly is asked why afterwards.

The trainer's numbers (loss, divergence, entropy, share of clipped tokens, norm of the gradient) and
the world's (`ContrastiveWorld`) in one line. A step that is done again after a kill replaces
itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.ablation.memory import Lines

SUFFIX = ".steps.jsonl"
Numbers = dict[str, float]


def path_of(state: Path, name: str) -> Path:
    """Where the steps of a policy's training are; `name` is such as `sft-1`."""
    return state / "training" / f"{name}{SUFFIX}"


class Steps:
    """The steps of one training run."""

    def __init__(self, path: Path) -> None:
        self._lines = Lines(path)
        self._steps: dict[int, Numbers] = {line["step"]: line for line in self._lines}

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Note a step that is over; what a trainer says last of all, without a loss, is of none."""
        if "loss" in numbers:
            self._steps[step] = {**numbers, "step": step}
            self._lines.add(self._steps[step])

    @property
    def in_order(self) -> Sequence[Numbers]:
        """All steps, the first one first."""
        return [self._steps[step] for step in sorted(self._steps)]
