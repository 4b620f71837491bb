"""Connect ledger and reviewer: choose the candidates to ask about, and keep the opinions.

A reviewer that is down or out of money degrades the run: suspicious successes stand, as they would
without a reviewer, and their verdicts say that it was to be asked.

Threat: a question is made of a candidate's source, so a candidate may try to make the request fail.
A request that fails leaves its own candidate unreviewed and no other. The reviewer is given up only
when it has never answered, or has failed several times in a row.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from cudal1.billing import Try
from cudal1.candidate import Candidate, Completion
from cudal1.errors import BudgetError, ProviderDownError, ProviderError
from cudal1.ledger import Ledger
from cudal1.llm.provider import Exchange, Provider, Request, has_failed, request_to
from cudal1.llm.reviewer.hack_cases import shipped_cases
from cudal1.llm.reviewer.questions import code_id, opinion_of, question
from cudal1.problem import Problem
from cudal1.prompts.prompt import DeviceFacts
from cudal1.review import Opinion, Review
from cudal1.selection.suspicion import suspicion
from cudal1.services.asking import LedgerReceipts, provider_of
from cudal1.services.repeating import repeat
from cudal1.settings.params import REVIEWER, Params, ReviewerParams
from cudal1.verdict import Verdict

log = logging.getLogger("cudal1")

MAX_DOWN = 3
"""Exchanges in a row without an answer, after which the fault is the reviewer's, not a candidate's.
"""


class ReviewReceipts(LedgerReceipts):
    """Receipts of a reviewer's answers, kept in the ledger beside the candidate they are about."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._asked: dict[str, Review] = {}

    def expect(self, completion_id: str, review: Review) -> None:
        """Announce the candidate that the next answer is about."""
        self._asked[completion_id] = review

    def arrived(self, completion: Completion, paid: Try | None = None) -> None:
        """Note the raw answer with what it cost; its opinion is read later."""
        review = self._asked[completion.id]
        self._ledger.add_review(review.model_copy(update={"completion": completion}), paid)


class Line:
    """A connection to the reviewer, opened when it is needed, and again when it broke."""

    def __init__(self, provider: Provider, receipts: ReviewReceipts) -> None:
        self._provider = provider
        self._receipts = receipts
        self._stack = ExitStack()
        self._exchange: Exchange | None = None
        self._was_heard = False
        self._num_down = 0
        self.stopped: ProviderError | None = None
        """The error after which nothing is asked in this run."""

    def ask(self, request: Request) -> Completion | None:
        """Return the answer; None if it cannot be had, for this request or in this run.

        Raises:
            ProviderError: it is misconfigured: the first request of all is refused.
        """
        if self.stopped is not None:
            return None
        is_fresh = self._exchange is None
        try:
            if self._exchange is None:
                self._exchange = self._stack.enter_context(self._provider.open(self._receipts))
            self._exchange.ask(request)
            completion = self._exchange.answer()
        except ProviderError as error:
            self.close()
            if not (self._was_heard or isinstance(error, ProviderDownError | BudgetError)):
                raise
            self._num_down += is_fresh
            is_down = not self._was_heard or self._num_down >= MAX_DOWN
            if isinstance(error, BudgetError) or is_down:
                self.stopped = error
            return None
        self._was_heard, self._num_down = True, 0
        return completion

    def close(self) -> None:
        """Close the exchange."""
        self._exchange = None
        self._stack.close()


class Reviewer:
    """The service that asks the reviewer about suspicious successes, each code once."""

    def __init__(
        self, ledger: Ledger, params: ReviewerParams, provider: Provider, facts: DeviceFacts
    ) -> None:
        self._ledger = ledger
        self._params = params
        self._provider = provider
        self._facts = facts
        self._receipts = ReviewReceipts(ledger)
        self._line = Line(provider, self._receipts)
        self.unreviewed: set[str] = set()
        """Suspicious candidates without a usable opinion."""

    @property
    def reviewer_id(self) -> str:
        """Return the id of the reviewer among all that were ever asked."""
        return self._provider.fingerprint

    def suspicion(self, verdict: Verdict, record: float | None) -> str | None:
        """Return the reason to ask the reviewer about a verdict; None if there is none."""
        params = self._params
        return suspicion(
            verdict,
            record=record,
            above=params.above,
            above_record=params.above_record,
            when_screened=params.when_screened,
            spot_share=params.spot_share,
        )

    def review(self, problem: Problem, candidate: Candidate, verdict: Verdict, why: str) -> None:
        """Put the reviewer's opinion into the ledger, if it can be had.

        Code that a person has ruled on is not asked about.
        """
        known = self._ledger.reviews(candidate, reviewer_id=self.reviewer_id)
        if any(review.opinion is not None for review in known):
            return
        code = code_id(problem.id, candidate.source)
        if repeat(self._ledger, candidate, code, reviewer_id=self.reviewer_id):
            return
        if not self._ask(problem, candidate, verdict, why, code):
            self.unreviewed.add(candidate.id)

    def close(self) -> None:
        """Close the exchange."""
        self._line.close()

    def _ask(
        self, problem: Problem, candidate: Candidate, verdict: Verdict, why: str, code: str
    ) -> bool:
        """Ask until the reviewer gives a usable opinion; return whether it did."""
        prompt, cases = question(
            problem,
            candidate.source,
            self._ledger.cases(),
            count=self._params.num_cases,
            speedup=verdict.speedup or 1.0,
            trigger=why,
            facts=self._facts,
        )
        earlier = {
            review.completion.attempt: review
            for review in self._ledger.reviews(candidate, reviewer_id=self.reviewer_id)
            if not has_failed(review.completion)
        }
        for attempt in range(self._params.attempts):
            review = earlier.get(attempt)
            if review is None:
                request = request_to(
                    self._provider,
                    stage=self._ledger.stage,
                    problem=problem,
                    prompt=prompt,
                    attempt=attempt,
                    seed=0,
                )
                review = self._answer(request, self._about(candidate, request, why, cases, code))
            if review is None:
                return False
            opinion = opinion_of(review.completion.text, candidate.source)
            if opinion is not None:
                self._keep(review.model_copy(update={"opinion": opinion}), opinion)
                return True
        return False

    def _answer(self, request: Request, expected: Review) -> Review | None:
        """Return the review with the answer in it; None if no answer came."""
        if self._line.stopped is None:
            self._receipts.expect(request.id, expected)
            completion = self._line.ask(request)
            if self._line.stopped is not None:
                log.warning(
                    "%s: no more second opinions in this run: %s",
                    self._ledger.stage,
                    self._line.stopped,
                )
            if completion is not None and not has_failed(completion):
                return expected.model_copy(update={"completion": completion})
        return None

    def _about(
        self, candidate: Candidate, request: Request, why: str, cases: tuple[str, ...], code: str
    ) -> Review:
        nothing = Completion(
            id=request.id,
            stage=request.stage,
            provider=REVIEWER,
            problem_id=request.problem.id,
            prompt_id=request.prompt.id,
            template_id=request.prompt.template_id,
            attempt=request.attempt,
            text="",
            finish_reason="asked",
        )
        return Review(
            completion=nothing,
            candidate_id=candidate.id,
            code_id=code,
            reviewer_id=self.reviewer_id,
            trigger=why,
            case_ids=cases,
            opinion=None,
        )

    def _keep(self, review: Review, opinion: Opinion) -> None:
        self._ledger.add_review(review)
        if opinion.is_cheat:
            log.warning(
                "%s: the reviewer vetoes candidate %s: %s: %s; "
                "`cudal1 hacks confirm` or `dismiss` it",
                self._ledger.stage,
                review.candidate_id,
                opinion.kind,
                opinion.evidence,
            )


def reviewer_name(params: Params) -> str:
    """Return the name of the reviewer's model; `off` if there is no reviewer."""
    provider = params.reviewer.provider
    return "off" if provider is None else str(getattr(provider, "model", provider.kind))


@contextmanager
def reviewer(
    ledger: Ledger, params: ReviewerParams, facts: DeviceFacts
) -> Generator[Reviewer | None]:
    """Yield the reviewer of params.yaml, or None if there is none.

    Raises:
        ProviderError: it is misconfigured.
    """
    if params.provider is None:
        yield None
        return
    known = {case.id for case in ledger.cases()}
    for case in shipped_cases():
        if case.id not in known:
            ledger.add_case(case)
    opened = Reviewer(ledger, params, provider_of(REVIEWER, params.provider), facts)
    try:
        yield opened
    finally:
        opened.close()
        _say_who_waits(ledger.stage, opened)


def _say_who_waits(stage: str, opened: Reviewer) -> None:
    if opened.unreviewed:
        log.warning(
            "%s: %d suspicious successes stand without a second opinion; `dvc repro -f -s %s` asks "
            "again about those whose request failed",
            stage,
            len(opened.unreviewed),
            stage,
        )
