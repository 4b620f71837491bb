"""A confirmed cheat that a judge is shown beside a suspicious candidate.

Which ones are shown is `cudal1.llm.similarity`; those that ship are in `cudal1.llm.hack_cases`.
"""

from __future__ import annotations

import re
from enum import StrEnum

from pydantic import field_validator

from cudal1.record import Record, content_id

_KIND = re.compile(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*")


class CaseOrigin(StrEnum):
    """Who says that it is a cheat."""

    SHIPPED = "shipped"
    """It came with the repository."""
    CONFIRMED = "confirmed"
    """It was found in a run, and a person or a guard confirmed it."""


class HackCase(Record):
    """Source that is known to cheat, and how; named by its content, so that none is kept twice."""

    kind: str
    """The mechanism in snake case, such as `cached_output`."""
    source: str
    """Without comments and docstrings, as `cudal1.llm.stripping` leaves it."""
    evidence: str
    """One line: what in the source makes it a cheat."""
    origin: CaseOrigin

    @property
    def id(self) -> str:
        """Content id over the source alone: the same source has one kind."""
        return content_id(self.source)

    @field_validator("kind")
    @classmethod
    def _is_snake_case(cls, kind: str) -> str:
        if _KIND.fullmatch(kind) is None:
            raise ValueError(f"kind={kind!r} is not in snake case")
        return kind

    @field_validator("evidence")
    @classmethod
    def _is_one_line(cls, evidence: str) -> str:
        if not evidence.strip() or not evidence.isprintable():
            raise ValueError(f"evidence={evidence!r} is not one printable line")
        return evidence
