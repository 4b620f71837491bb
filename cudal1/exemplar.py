"""Exemplar: an earlier success as a prompt shows it. Which ones are shown is `cudal1.contrast`."""

from __future__ import annotations

from pydantic import Field

from cudal1.record import Record


class Birth(Record):
    """How an earlier success came to be: what the choice of exemplars looks at.

    A source that was found several times is several births with one `candidate_id`; who counts
    sources looks at that.
    """

    candidate_id: str
    score: float = Field(ge=0)
    """Certified speedup."""
    born: int | None = Field(default=None, ge=0)
    """Round or training step that found it; None: it was there before the first."""
    island: int | None = Field(default=None, ge=0)
    """Whose exemplars its author was shown (`cudal1.islands`); None: no island's."""


class Exemplar(Birth):
    """An earlier candidate with its score, fit to be shown in a prompt."""

    source: str
