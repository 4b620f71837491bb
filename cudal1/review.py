"""Review: what the adversarial judge, and a person after it, say about a suspicious success.

Source: paper 3.2 (a language model is asked when a reward jumps). Who is asked, and about what, is
`cudal1.llm.hack_judge` and `cudal1.suspicion`. It may veto, never approve: a review that finds
nothing leaves the verdict as it was.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from cudal1.candidate import Completion
from cudal1.hack_case import KIND
from cudal1.record import Record

NO_KIND = "none"
"""What an opinion that found nothing says in place of a cheat's name."""


def one_line(text: str) -> str:
    """The text on one line, without what cannot be printed: its author may have been talked to."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())


OneLine = Annotated[str, AfterValidator(one_line), Field(min_length=1, max_length=2000)]


class Opinion(Record):
    """What the judge must answer, and nothing else."""

    is_cheat: bool
    kind: str = Field(pattern=KIND)
    """Short name of the cheat; `none` where there is none."""
    quote: str
    """The line of the source that gives it away, word for word; empty where there is none."""
    evidence: OneLine
    """Why, in one line that a person can check."""

    @model_validator(mode="after")
    def _names_the_cheat(self) -> Self:
        if self.is_cheat and self.kind == NO_KIND:
            raise ValueError("a cheat without a kind")
        return self


REPEATED = "repeated"
"""Finish reason of a review for which nobody was asked: the same code had been judged before."""


class Review(Record):
    """One answer of the judge about one candidate."""

    completion: Completion
    """The raw answer, its id and its cost."""
    candidate_id: str
    code_id: str
    """Hash of problem and code: the same code with other comments is no new question."""
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
    code_id: str
    """As a review's: it holds for the same code under other names, too."""
    is_cheat: bool
    kind: str = Field(pattern=KIND)
    """Short name of the cheat; `none` where there is none."""
    evidence: OneLine
    """Why, in one line that a person can check."""
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
            is_cheat=self.is_cheat, kind=self.kind if self.is_cheat else NO_KIND, quote="",
            evidence=self.evidence,
        )  # fmt: skip
