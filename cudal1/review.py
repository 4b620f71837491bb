"""Review: what the adversarial judge, and a person after it, say about a suspicious success.

Source: paper 3.2 (a language model is asked when a reward jumps). Who is asked, and about what, is
`cudal1.llm.hack_judge` and `cudal1.suspicion`. It may veto, never approve: a review that finds
nothing leaves the verdict as it was.
"""

from __future__ import annotations

from pydantic import Field

from cudal1.candidate import Completion
from cudal1.record import Record

KIND = r"^[a-z][a-z0-9_]{2,39}$"
"""How a cheat is named: snake_case, such as `cached_output`."""


class Opinion(Record):
    """What the judge must answer, and nothing else."""

    is_cheat: bool
    kind: str = Field(pattern=KIND)
    """Short name of the cheat; `none` where there is none."""
    quote: str = Field(max_length=500)
    """The line of the source that gives it away, word for word; empty where there is none."""
    evidence: str = Field(min_length=1, max_length=1000)
    """Why, in one line that a person can check."""


class Review(Record):
    """One answer of the judge about one candidate."""

    completion: Completion
    """The raw answer, its id and its cost."""
    candidate_id: str
    judge_id: str
    """Fingerprint of the provider that was asked: another judge is asked anew."""
    trigger: str
    """Why it was asked, in one line."""
    case_ids: tuple[str, ...]
    """The confirmed cases that it was shown, the most similar first."""
    opinion: Opinion | None
    """None: what it said was no answer to the question."""


class Ruling(Record):
    """What a person decided about a candidate; it stands above every opinion."""

    candidate_id: str
    is_cheat: bool
    kind: str = Field(pattern=KIND)
    evidence: str
    ruled_at: str
    """UTC, ISO 8601."""
