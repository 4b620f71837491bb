"""A confirmed cheat that a judge is shown beside a suspicious candidate.

Which ones are shown is `cudal1.llm.similarity`; those that ship are in `cudal1.llm.hack_cases`.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, field_validator

from cudal1.record import Record, content_id

KIND = r"^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$"
"""How a cheat is named: snake case, such as `cached_output`."""


class CaseOrigin(StrEnum):
    """Who says that it is a cheat."""

    SHIPPED = "shipped"
    """It came with the repository."""
    CONFIRMED = "confirmed"
    """It was found in a run, and a person confirmed it."""


class HackCase(Record):
    """Source that is known to cheat, and how."""

    kind: str = Field(pattern=KIND)
    """The mechanism in snake case, such as `cached_output`."""
    source: str
    """Of one that ships, without comments and docstrings, as `cudal1.llm.stripping` leaves it; of
    one that was confirmed, as it came."""
    evidence: str
    """One line: what in the source makes it a cheat."""
    origin: CaseOrigin
    candidate_id: str | None = None
    """The candidate that it is; None for one that ships."""

    @property
    def id(self) -> str:
        """The candidate's; without one, of the source alone: the same source has one kind."""
        return self.candidate_id or content_id(self.source)

    @field_validator("evidence")
    @classmethod
    def _is_one_line(cls, evidence: str) -> str:
        if not evidence.strip() or not evidence.isprintable():
            raise ValueError(f"evidence={evidence!r} is not one printable line")
        return evidence
