"""Review: the opinions of the reviewer, and of a person, on a suspicious success.

Source: paper 3.2 (a language model is asked when a reward jumps). `cudal1.selection.suspicion`
decides what is suspicious; `cudal1.llm.reviewer.questions` asks. The reviewer may veto, never
approve: a review that finds nothing leaves the verdict unchanged.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from cudal1.candidate import Completion
from cudal1.hack_case import KIND
from cudal1.record import Record

NO_KIND = "none"
"""The kind in an opinion that found no cheat."""


def one_line(text: str) -> str:
    """Return the text on one line, printable; an adversary may have influenced its author."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


OneLine = Annotated[str, AfterValidator(one_line), Field(min_length=1, max_length=2000)]


class Opinion(Record):
    """The complete answer that the reviewer must give."""

    is_cheat: bool
    kind: str = Field(pattern=KIND)
    """Short name of the cheat; `none` where there is none."""
    quote: str
    """The line of the source that shows the cheat, word for word; empty where there is none."""
    evidence: OneLine
    """The reason, in one line that a person can check."""

    @model_validator(mode="after")
    def _names_the_cheat(self) -> Self:
        if self.is_cheat and self.kind == NO_KIND:
            raise ValueError("a cheat without a kind")
        return self


REPEATED = "repeated"
"""Finish reason of a review without a request: the reviewer had seen the same code earlier."""


class Review(Record):
    """One answer of the reviewer about one candidate."""

    completion: Completion
    """The raw answer, its id and its cost."""
    candidate_id: str
    code_id: str
    """Hash of problem and code; the same code with other comments is the same question."""
    reviewer_id: str
    """Fingerprint of the reviewer's provider; another reviewer is asked anew."""
    trigger: str
    """The reason for asking, in one line."""
    case_ids: tuple[str, ...]
    """The confirmed cases that the reviewer was shown, the most similar first."""
    opinion: Opinion | None
    """The reviewer's opinion; None: its answer was no answer to the question."""


class Ruling(Record):
    """A person's decision about a candidate; it stands above every opinion."""

    candidate_id: str
    code_id: str
    """Hash of problem and code, as in a review: the ruling holds for the same code under other
    names."""
    is_cheat: bool
    kind: str = Field(pattern=KIND)
    """Short name of the cheat; `none` where there is none."""
    evidence: OneLine
    """The reason, in one line that a person can check."""
    ruled_at: str
    """UTC, ISO 8601."""

    @model_validator(mode="after")
    def _names_the_cheat(self) -> Self:
        if self.is_cheat and self.kind == NO_KIND:
            raise ValueError("a cheat without a kind")
        return self

    @property
    def opinion(self) -> Opinion:
        """The ruling as an opinion on the same code."""
        return Opinion(
            is_cheat=self.is_cheat,
            kind=self.kind if self.is_cheat else NO_KIND,
            quote="",
            evidence=self.evidence,
        )
