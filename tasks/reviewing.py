"""Where ledger and adversarial judge meet: who is asked about, what was said, and what follows.

A judge that is down or out of money degrades the run: suspicious successes stand, as they would
without a judge, and their verdicts say that it was to be asked.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from cudal1.billing import Try
from cudal1.candidate import Candidate, Completion
from cudal1.errors import BudgetError, ProviderDownError
from cudal1.ledger import Ledger
from cudal1.llm.hack_cases import shipped_cases
from cudal1.llm.hack_judge import opinion_of, question
from cudal1.llm.provider import Exchange, Provider, Request, has_failed, request_to
from cudal1.params import HackJudgeParams, Params
from cudal1.problem import Problem
from cudal1.prompt import DeviceFacts, Prompt
from cudal1.review import Opinion, Review
from cudal1.suspicion import suspicion
from cudal1.verdict import Verdict
from tasks.asking import provider_of
from tasks.stage import log

NAME = "hack_judge"
"""Of the provider, in bills and logs."""


class ReviewReceipts:
    """Receipts of a judge's answers, kept in the ledger beside the candidate they are about."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._asked: dict[str, Review] = {}

    def expect(self, completion_id: str, review: Review) -> None:
        """Say what the answer that is about to be asked for is about."""
        self._asked[completion_id] = review

    def tried(self, attempt: Try) -> None:
        """Note a try before it leaves, and what became of it."""
        self._ledger.add_try(attempt)

    def arrived(self, completion: Completion, paid: Try | None = None) -> None:
        """Note the raw answer with what it cost; what it says is found later."""
        review = self._asked[completion.id]
        self._ledger.add_review(review.model_copy(update={"completion": completion}), paid)

    def spent_usd(self, provider: str) -> float:
        """The bill so far, with everything that is in doubt."""
        return float(self._ledger.query("spent", provider=provider).item(0, "at_most_usd"))


class Reviewer:
    """Asks the adversarial judge about suspicious successes, each candidate once."""

    def __init__(
        self, ledger: Ledger, params: HackJudgeParams, provider: Provider, facts: DeviceFacts,
        stack: ExitStack,
    ) -> None:  # fmt: skip
        self._ledger = ledger
        self._params = params
        self._provider = provider
        self._facts = facts
        self._stack = stack
        self._receipts = ReviewReceipts(ledger)
        self._exchange: Exchange | None = None
        self._is_stopped = False

    def suspicion(self, verdict: Verdict, record: float | None) -> str | None:
        """Why the judge is to be asked about a verdict; None when it is not."""
        params = self._params
        return suspicion(
            verdict, record=record, above=params.above, above_record=params.above_record,
            when_screened=params.when_screened,
        )  # fmt: skip

    def review(self, problem: Problem, candidate: Candidate, verdict: Verdict, why: str) -> None:
        """See to it that the ledger has the judge's opinion, if it can be had."""
        judge_id = self._provider.fingerprint
        earlier = {
            review.completion.attempt: review
            for review in self._ledger.reviews(candidate, judge_id=judge_id)
            if not has_failed(review.completion)
        }
        if any(review.opinion is not None for review in earlier.values()):
            return
        prompt, cases = question(
            problem, candidate.source, self._ledger.cases(), count=self._params.num_cases,
            speedup=verdict.speedup or 1.0, trigger=why, facts=self._facts,
        )  # fmt: skip
        for attempt in range(self._params.attempts):
            known = earlier.get(attempt)
            completion = known.completion if known else None
            if completion is None and not self._is_stopped:
                completion = self._ask(problem, candidate, prompt, attempt, why, cases)
            if completion is None:
                return
            if (opinion := opinion_of(completion.text, candidate.source)) is not None:
                self._keep(candidate, completion, why, cases, opinion)
                return

    def _ask(
        self, problem: Problem, candidate: Candidate, prompt: Prompt, attempt: int, why: str,
        cases: tuple[str, ...],
    ) -> Completion | None:  # fmt: skip
        request = request_to(
            self._provider, stage=self._ledger.stage, problem=problem, prompt=prompt,
            attempt=attempt, seed=0,
        )  # fmt: skip
        self._receipts.expect(request.id, self._about(candidate, request, why, cases))
        try:
            if self._exchange is None:
                opened = self._provider.open(self._receipts)
                self._exchange = self._stack.enter_context(opened)
            self._exchange.ask(request)
            completion = self._exchange.answer()
        except (ProviderDownError, BudgetError) as error:
            self._is_stopped = True
            log.warning("%s: no more second opinions in this run: %s", self._ledger.stage, error)
            return None
        return None if has_failed(completion) else completion

    def _about(
        self, candidate: Candidate, request: Request, why: str, cases: tuple[str, ...]
    ) -> Review:
        nothing = Completion(
            id=request.id, stage=request.stage, provider=NAME, problem_id=request.problem.id,
            prompt_id=request.prompt.id, template_id=request.prompt.template_id,
            attempt=request.attempt, text="", finish_reason="asked",
        )  # fmt: skip
        return Review(
            completion=nothing, candidate_id=candidate.id, judge_id=self._provider.fingerprint,
            trigger=why, case_ids=cases, opinion=None,
        )  # fmt: skip

    def _keep(
        self, candidate: Candidate, completion: Completion, why: str, cases: tuple[str, ...],
        opinion: Opinion,
    ) -> None:  # fmt: skip
        self._ledger.add_review(Review(
            completion=completion, candidate_id=candidate.id,
            judge_id=self._provider.fingerprint, trigger=why, case_ids=cases, opinion=opinion,
        ))  # fmt: skip
        if opinion.is_cheat:
            log.warning(
                "%s: the adversarial judge vetoes candidate %s: %s: %s; "
                "`cudal1 hacks confirm` or `dismiss` it",
                self._ledger.stage, candidate.id, opinion.kind, opinion.evidence,
            )  # fmt: skip


def who_judges(params: Params) -> str:
    """The adversarial judge's model for readers; `off` where there is none."""
    provider = params.hack_judge.provider
    return "off" if provider is None else str(getattr(provider, "model", provider.kind))


@contextmanager
def reviewer(
    ledger: Ledger, params: HackJudgeParams, facts: DeviceFacts
) -> Generator[Reviewer | None]:
    """The adversarial judge of params.yaml, or None where there is none.

    Raises:
        ProviderError: it is misconfigured.
    """
    if params.provider is None:
        yield None
        return
    with ExitStack() as stack:
        known = {case.id for case in ledger.cases()}
        for case in shipped_cases():
            if case.id not in known:
                ledger.add_case(case)
        yield Reviewer(ledger, params, provider_of(NAME, params.provider), facts, stack)
