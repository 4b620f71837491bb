"""Make an attempt of a judged answer, for prompts that show it with what became of it."""

from __future__ import annotations

from cudal1.candidate import Candidate, Completion
from cudal1.extract.extract import extract
from cudal1.ledger import Ledger
from cudal1.prompts.feedback import feedback
from cudal1.selection.exemplar import Attempt
from cudal1.selection.reward import speed_reward
from cudal1.verdict import Verdict


def attempt_of(
    ledger: Ledger, completion: Completion, candidate: Candidate | None, verdict: Verdict | None
) -> Attempt:
    """Return an answer with its source, its certified speedup and what became of it.

    Args:
        ledger: knows what a reviewer said of the candidate.
        completion: the answer.
        candidate: the candidate in it, if there is one.
        verdict: the verdict on the candidate; None without a candidate.
    """
    no_source = extract(completion.text).reason if candidate is None else None
    remark = None
    if candidate is not None and verdict is not None and verdict.is_successful:
        remark = ledger.remark(candidate)
    return Attempt(
        candidate_id=None if candidate is None else candidate.id,
        source=None if candidate is None else candidate.source,
        score=speed_reward(verdict),
        feedback=feedback(verdict, no_source=no_source, remark=remark),
    )


def failure_of(candidate: Candidate, verdict: Verdict) -> Attempt:
    """Return a failed candidate with the reason, for prompts of other answers."""
    return Attempt(
        candidate_id=candidate.id, source=candidate.source, score=0.0, feedback=feedback(verdict)
    )
