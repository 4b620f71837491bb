"""Verdicts of a null test, as they come in."""

from __future__ import annotations

from dataclasses import dataclass, field

from cudal1.problem import Problem
from cudal1.verdict import Verdict


@dataclass
class Found:
    """The findings of a null test so far."""

    device_kind: str = ""
    asked: int = 0
    """Verdicts that were to be made."""
    rejected: list[tuple[Problem, str]] = field(default_factory=list[tuple[Problem, str]])
    verdicts: list[tuple[Problem, Verdict]] = field(default_factory=list[tuple[Problem, Verdict]])
