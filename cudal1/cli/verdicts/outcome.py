"""The results of judging a file of candidates."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1.baseline import Baseline
from cudal1.cli.verdicts.verdict_file import Judged


@dataclass
class Outcome:
    """Verdicts, old and new, and messages about rows without one."""

    device_kind: str
    num_rows: int
    complaints: list[str]
    """A message on each line that is no row, and on each problem that cannot be judged."""
    num_without: int = 0
    """Rows without a verdict."""
    num_new: int = 0
    judged: list[Judged] = field(default_factory=list[Judged])
    """Verdicts by candidate, duplicates once."""
    baselines: list[Judged] = field(default_factory=list[Judged])
    """Verdicts on the references that were asked for, new or old."""
    num_references_without: int = 0
    stopped: str = ""
    """Reason for stopping before the end; empty if the run was not stopped."""
    is_interrupted: bool = False
    """True if Ctrl-C stopped it."""

    def of(self, baseline: Baseline) -> list[Judged]:
        """Return the verdicts on references that were run this way."""
        return [judged for judged in self.baselines if judged.baseline is baseline]
