"""Apply vetoes of people and, where there is one, of the reviewer to successes."""

from __future__ import annotations

from collections.abc import Callable

from cudal1.candidate import Candidate
from cudal1.ledger import Ledger
from cudal1.problem import Problem
from cudal1.services.repeating import veto_of
from cudal1.services.reviewing import Reviewer
from cudal1.verdict import SecondOpinion, Verdict


class Vetting:
    """The filter that takes vetoed successes from verdicts.

    Args:
        ledger: knows all vetoes.
        reviewer: asks the reviewer; None: there is none.
        record_of: the best certified speedup of a problem, a candidate's own aside.
    """

    def __init__(
        self,
        ledger: Ledger,
        reviewer: Reviewer | None,
        record_of: Callable[[Problem, Candidate], float | None],
    ) -> None:
        self._ledger = ledger
        self._reviewer = reviewer
        self._record_of = record_of

    @property
    def num_unreviewed(self) -> int:
        """Return the number of suspicious successes that have no second opinion."""
        return 0 if self._reviewer is None else len(self._reviewer.unreviewed)

    def marked(self, problem: Problem, candidate: Candidate, verdict: Verdict) -> Verdict:
        """Return a new verdict with a mark that says whether the reviewer is to be asked."""
        second_opinion = SecondOpinion.OFF
        if self._reviewer is not None:
            why = self._reviewer.suspicion(verdict, self._record_of(problem, candidate))
            second_opinion = SecondOpinion.NOT_NEEDED if why is None else SecondOpinion.ASKED
        return verdict.model_copy(update={"second_opinion": second_opinion})

    def apply_vetoes(
        self, problem: Problem, candidate: Candidate, verdict: Verdict, *, timing: bool
    ) -> Verdict:
        """Return the verdict less what a person or, about speed, the reviewer vetoes."""
        if not verdict.is_successful:
            return verdict
        veto = veto_of(self._ledger, candidate)
        if veto is None and timing and self._reviewer is not None:
            why = self._suspicion(problem, candidate, verdict, self._reviewer)
            if why is not None:
                self._reviewer.review(problem, candidate, verdict, why)
                veto = self._ledger.veto(candidate)
        return verdict if veto is None else verdict.vetoed(veto)

    def _suspicion(
        self, problem: Problem, candidate: Candidate, verdict: Verdict, judge: Reviewer
    ) -> str | None:
        """Return the reason to ask the reviewer; a decision made with a reviewer stays as it is."""
        if verdict.second_opinion is SecondOpinion.NOT_NEEDED:
            return None
        why = judge.suspicion(verdict, self._record_of(problem, candidate))
        was_asked = verdict.second_opinion is SecondOpinion.ASKED
        return why or ("it was suspicious when it was judged" if was_asked else None)
