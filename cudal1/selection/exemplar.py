"""Exemplar, Attempt: earlier answers as a prompt shows them. `contrast` chooses exemplars."""

from __future__ import annotations

from pydantic import Field

from cudal1.record import Record


class Birth(Record):
    """The origin of an earlier success: the facts that the choice of exemplars uses.

    A source that was found several times has several births with one `candidate_id`, by which
    sources are counted.
    """

    candidate_id: str
    score: float = Field(ge=0)
    """Certified speedup."""
    born: int | None = Field(default=None, ge=0)
    """Round or training step that found it; None: it was there before the first."""
    island: int | None = Field(default=None, ge=0)
    """Island of the exemplars that its author was shown (`cudal1.selection.islands`); None: no
    island."""


class Exemplar(Birth):
    """An earlier candidate with its score, fit to be shown in a prompt."""

    source: str


class Attempt(Record):
    """An earlier answer with what became of it, whatever that was."""

    candidate_id: str | None
    """None: the answer held no candidate."""
    source: str | None
    """The candidate's source."""
    score: float = Field(ge=0)
    """Certified speedup; 0 for a failure."""
    feedback: str
    """Its outcome in words (`cudal1.prompts.feedback`)."""
