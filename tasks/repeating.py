"""What was said about code holds for the same code under another name: nobody is asked again.

A candidate is named by its source, and a judged cheat could be repeated with another comment, again
and again, until the judge lets it pass. So a person's word and a judge's veto hold for the code.
"""

from __future__ import annotations

from cudal1.candidate import Candidate, Completion
from cudal1.ledger import Ledger
from cudal1.llm.hack_judge import code_id
from cudal1.params import JUDGE
from cudal1.record import content_id
from cudal1.review import REPEATED, Review
from cudal1.verdict import HackFlag

PERSON = "person"
"""Stands for the judge in a review that repeats a ruling."""


def veto_of(ledger: Ledger, candidate: Candidate) -> HackFlag | None:
    """The cheat that somebody saw in a candidate, or in another of the same code."""
    if not ledger.has_opinions():  # mostly, and a training step asks about every answer
        return None
    veto = ledger.veto(candidate)
    if veto is not None or not ledger.was_judged(candidate.problem_id):
        return veto
    code = code_id(candidate.problem_id, candidate.source)
    return ledger.veto(candidate) if repeat(ledger, candidate, code, judge_id=None) else None


def repeat(ledger: Ledger, candidate: Candidate, code: str, *, judge_id: str | None) -> bool:
    """Note what was said about the same code as said about a candidate; whether anything was.

    A person's word, or a veto of any judge, or what this judge found.
    """
    ruling = ledger.ruling_on(candidate, code_id=code)
    if ruling is not None:
        if ruling.candidate_id != candidate.id:
            said = _copy(ledger, candidate, ruling.candidate_id, template_id="", prompt_id="")
            _note(ledger, Review(
                completion=said, candidate_id=candidate.id, code_id=code, judge_id=PERSON,
                trigger=f"same code as {ruling.candidate_id}", case_ids=(), opinion=ruling.opinion,
            ))  # fmt: skip
        return True
    known = ledger.opinion_on(code, judge_id=judge_id)
    if known is None:
        return False
    if known.candidate_id != candidate.id:
        said = _copy(
            ledger, candidate, known.completion.id, template_id=known.completion.template_id,
            prompt_id=known.completion.prompt_id,
        )  # fmt: skip
        changes = {
            "completion": said, "candidate_id": candidate.id,
            "trigger": f"same code as {known.candidate_id}",
        }  # fmt: skip
        _note(ledger, known.model_copy(update=changes))
    return True


def _note(ledger: Ledger, review: Review) -> None:
    if not ledger.has_review(review.completion.id):
        ledger.add_review(review)


def _copy(
    ledger: Ledger, candidate: Candidate, original: str, *, template_id: str, prompt_id: str
) -> Completion:
    """An answer that nobody gave: what it repeats has the words, and the cost."""
    return Completion(
        id=content_id(original, candidate.id), stage=ledger.stage, provider=JUDGE,
        problem_id=candidate.problem_id, prompt_id=prompt_id, template_id=template_id, attempt=0,
        text="", finish_reason=REPEATED,
    )  # fmt: skip
