"""A confirmed cheat that the reviewer is shown beside a suspicious candidate.

`cudal1.llm.reviewer.similarity` chooses the cases; those that ship are in
`cudal1.llm.reviewer.hack_cases`.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, field_validator

from cudal1.record import Record, content_id

KIND = r"^[a-z][a-z0-9]*(?:_[a-z0-9]+)*$"
"""Pattern of a cheat's name: snake case, such as `cached_output`."""


class CaseOrigin(StrEnum):
    """The origin of the claim that a source cheats."""

    SHIPPED = "shipped"
    """It came with the repository."""
    CONFIRMED = "confirmed"
    """It was found in a run, and a person confirmed it."""


class HackCase(Record):
    """A source that is known to cheat, and its mechanism."""

    kind: str = Field(pattern=KIND)
    """The mechanism in snake case, such as `cached_output`."""
    source: str
    """The source. A case that ships has no comments and docstrings, as
    `cudal1.llm.reviewer.stripping` leaves it; a confirmed case is unchanged."""
    evidence: str
    """One line that names the cheat in the source."""
    origin: CaseOrigin
    candidate_id: str | None = None
    """Id of the candidate that is the case; None for a case that ships."""

    @property
    def id(self) -> str:
        """The candidate's id; without one, the content id of the source alone."""
        return self.candidate_id or content_id(self.source)

    @field_validator("evidence")
    @classmethod
    def _is_one_line(cls, evidence: str) -> str:
        if not evidence.strip() or not evidence.isprintable():
            raise ValueError(f"evidence={evidence!r} is not one printable line")
        return evidence
