"""Apply an opinion on code to the same code under another name, without asking again.

A candidate is named by its source. So a judged cheat could be repeated with another comment, again
and again, until the reviewer lets it pass. Therefore a person's word and a reviewer's veto hold for
the code.
"""

from __future__ import annotations

from cudal1.candidate import Candidate, Completion
from cudal1.ledger import Ledger
from cudal1.llm.reviewer.questions import code_id
from cudal1.record import content_id
from cudal1.review import REPEATED, Review
from cudal1.settings.params import REVIEWER
from cudal1.verdict import HackFlag

PERSON = "person"
"""Stands for the reviewer in a review that repeats a person's ruling."""


def veto_of(ledger: Ledger, candidate: Candidate) -> HackFlag | None:
    """Return the cheat that was seen in a candidate, or in another one of the same code."""
    if not ledger.has_opinions():  # mostly so, and a training step asks about every answer
        return None
    veto = ledger.veto(candidate)
    if veto is not None or not ledger.was_judged(candidate.problem_id):
        return veto
    code = code_id(candidate.problem_id, candidate.source)
    return ledger.veto(candidate) if repeat(ledger, candidate, code, reviewer_id=None) else None


def repeat(ledger: Ledger, candidate: Candidate, code: str, *, reviewer_id: str | None) -> bool:
    """Repeat an opinion on the same code for a candidate; return whether there was one.

    The opinion is a person's word, a veto of any reviewer, or what this reviewer found.
    """
    ruling = ledger.ruling_on(candidate, code_id=code)
    if ruling is not None:
        if ruling.candidate_id != candidate.id:
            said = _copy(ledger, candidate, ruling.candidate_id, template_id="", prompt_id="")
            _note(
                ledger,
                Review(
                    completion=said,
                    candidate_id=candidate.id,
                    code_id=code,
                    reviewer_id=PERSON,
                    trigger=f"same code as {ruling.candidate_id}",
                    case_ids=(),
                    opinion=ruling.opinion,
                ),
            )
        return True
    known = ledger.opinion_on(code, reviewer_id=reviewer_id)
    if known is None:
        return False
    if known.candidate_id != candidate.id:
        said = _copy(
            ledger,
            candidate,
            known.completion.id,
            template_id=known.completion.template_id,
            prompt_id=known.completion.prompt_id,
        )
        changes = {
            "completion": said,
            "candidate_id": candidate.id,
            "trigger": f"same code as {known.candidate_id}",
        }
        _note(ledger, known.model_copy(update=changes))
    return True


def _note(ledger: Ledger, review: Review) -> None:
    if not ledger.has_review(review.completion.id):
        ledger.add_review(review)


def _copy(
    ledger: Ledger, candidate: Candidate, original: str, *, template_id: str, prompt_id: str
) -> Completion:
    """Return an empty answer, which repeats another one; that one has the words, and the cost."""
    return Completion(
        id=content_id(original, candidate.id),
        stage=ledger.stage,
        provider=REVIEWER,
        problem_id=candidate.problem_id,
        prompt_id=prompt_id,
        template_id=template_id,
        attempt=0,
        text="",
        finish_reason=REPEATED,
    )
