"""Judge with made-up speeds (`benchmarks.experiment.roofline`), to rehearse without a GPU.

This is NOT a measurement: none of its figures may be claimed of a device.
"""

from __future__ import annotations

from benchmarks.experiment.roofline import normal, right_variants, speedup
from cudal1.candidate import Candidate
from cudal1.problem import Problem


class SimulatedJudge:
    """A judge that takes correctness from a table, and speed from arithmetic."""

    def __init__(self) -> None:
        self._right: dict[str, frozenset[str]] = {}

    def judge(
        self, problem: Problem, candidate: Candidate, record: float | None
    ) -> tuple[str, float]:
        """Return correct with its made-up speedup, or incorrect."""
        if problem.id not in self._right:
            self._right[problem.id] = frozenset(right_variants(problem))
        if normal(candidate.source) not in self._right[problem.id]:
            return "incorrect", 0.0
        speed = speedup(problem, candidate.source)
        return ("incorrect", 0.0) if speed is None else ("correct", speed)

    def close(self) -> None:
        """Do nothing: nothing is held."""
