"""What stands of a success after people and, where there is one, the adversarial judge."""

from __future__ import annotations

from collections.abc import Callable

from cudal1.candidate import Candidate
from cudal1.ledger import Ledger
from cudal1.problem import Problem
from cudal1.verdict import SecondOpinion, Verdict
from tasks.repeating import veto_of
from tasks.reviewing import Reviewer


class Vetting:
    """Takes from verdicts what was vetoed.

    Args:
        ledger: knows who has vetoed what.
        reviewer: asks the adversarial judge; None: there is none.
        record_of: the best certified speedup of a problem, a candidate's own aside.
    """

    def __init__(
        self, ledger: Ledger, reviewer: Reviewer | None,
        record_of: Callable[[Problem, Candidate], float | None],
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._reviewer = reviewer
        self._record_of = record_of

    @property
    def num_unreviewed(self) -> int:
        """Suspicious successes that stand without a second opinion."""
        return 0 if self._reviewer is None else len(self._reviewer.unreviewed)

    def marked(self, problem: Problem, candidate: Candidate, verdict: Verdict) -> Verdict:
        """A new verdict that says whether the judge is to be asked."""
        second_opinion = SecondOpinion.OFF
        if self._reviewer is not None:
            why = self._reviewer.suspicion(verdict, self._record_of(problem, candidate))
            second_opinion = SecondOpinion.NOT_NEEDED if why is None else SecondOpinion.ASKED
        return verdict.model_copy(update={"second_opinion": second_opinion})

    def less_vetoes(
        self, problem: Problem, candidate: Candidate, verdict: Verdict, *, timing: bool
    ) -> Verdict:
        """The verdict less what a person or, about speed, the adversarial judge vetoes."""
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
        """Why the judge is to be asked; what was decided when there was one stays decided."""
        if verdict.second_opinion is SecondOpinion.NOT_NEEDED:
            return None
        why = judge.suspicion(verdict, self._record_of(problem, candidate))
        was_asked = verdict.second_opinion is SecondOpinion.ASKED
        return why or ("it was suspicious when it was judged" if was_asked else None)
