"""The interface of providers, which turn prompts into completions.

    provider = make_provider("gpt-4o", settings)
    with provider.open(receipts) as exchange:
        exchange.ask(request_to(provider, stage=…, problem=…, prompt=…, attempt=0, seed=0))
        completion = exchange.answer()

Each kind has a module of its own: `rewriter_provider`, `replay`, `openai_api`, `local`, `vllm`.
Nothing here knows what an answer is worth.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from cudal1.billing import Try
from cudal1.candidate import Completion
from cudal1.problem import Problem
from cudal1.prompts.prompt import Prompt
from cudal1.record import Record, content_id

EXHAUSTED = "exhausted"
"""Finish reason of a completion that stands for "no more answers to this problem": stop asking."""

ERROR_PREFIX = "error: "
"""Prefix of the finish reason of a request that failed for good."""


class Request(Record):
    """One question to one provider."""

    id: str
    """Name of the question, and the id of its completion."""
    stage: str
    """The DVC stage that asks."""
    problem: Problem
    prompt: Prompt
    attempt: int
    """Number of the attempt, from 0 within (provider, problem, prompt)."""
    seed: int
    """Entropy for providers that draw their own answers; other providers ignore it."""
    with_logprobs: bool = False
    """True if the log-probability of each token of the answer is wanted."""


class Receipts(Protocol):
    """A log of what happens to requests; each record is on disk when the call returns.

    A provider's own threads call it at the moment of the event: what was paid for must outlive a
    kill of the process that was about to read it.
    """

    def tried(self, attempt: Try) -> None:
        """Record a try that is about to leave, and again with its outcome when it has ended."""
        ...

    def arrived(self, completion: Completion, paid: Try | None = None) -> None:
        """Record an answer before it is read, together with the try that brought it, if that cost.

        Both or neither are recorded: a kill between them would put one cost into two bills.
        """
        ...

    def spent_usd(self, provider: str) -> float:
        """Return the cost of all tries at a provider so far, those in doubt counted in full."""
        ...


class Exchange(Protocol):
    """An open line to a provider: requests go in, completions come out in any order."""

    def ask(self, request: Request) -> None:
        """Hand over a request and return at once."""
        ...

    def answer(self) -> Completion:
        """Wait for the next completion; each request gets one, which `Receipts` has already.

        A request that failed for good has an empty text and a finish reason that begins with
        `error: `.

        Raises:
            BudgetError: another request could cost more than is left; all that were sent were
                answered before.
            ProviderDownError: the provider does not answer; completions that had arrived were
                returned before.
            ProviderError: the provider is misconfigured or refuses us.
        """
        ...


class Provider(Protocol):
    """A source of completions."""

    @property
    def name(self) -> str:
        """The key under `generate.providers` in params.yaml."""
        ...

    @property
    def fingerprint(self) -> str:
        """Content id of everything about the provider that decides its answers."""
        ...

    @property
    def is_seeded(self) -> bool:
        """True if a request's seed changes the answer."""
        ...

    @property
    def width(self) -> int:
        """Requests that the provider works on at a time."""
        ...

    def open(self, receipts: Receipts) -> AbstractContextManager[Exchange]:
        """Open an exchange; leaving it abandons the requests in flight.

        Raises:
            ProviderError: the provider cannot be started.
        """
        ...


def complete(
    provider: Provider, requests: Sequence[Request], receipts: Receipts
) -> Iterator[Completion]:
    """Yield one completion for each request, as they arrive, in any order.

    It is for callers that need all the answers, failed ones too. It raises what `Exchange.answer`
    raises.
    """
    with provider.open(receipts) as exchange:
        for request in requests:
            exchange.ask(request)
        for _ in requests:
            yield exchange.answer()


def request_to(
    provider: Provider, *, stage: str, problem: Problem, prompt: Prompt, attempt: int, seed: int
) -> Request:
    """Return the question, named so that it is never asked or paid for twice.

    The id covers provider, problem, prompt and attempt, and the seed where it matters. It leaves
    out the stage, so two stages with the same question share the answer.
    """
    parts = [provider.fingerprint, problem.id, prompt.id, str(attempt)]
    if provider.is_seeded:
        parts.append(str(seed))
    return Request(
        id=content_id(*parts),
        stage=stage,
        problem=problem,
        prompt=prompt,
        attempt=attempt,
        seed=seed,
    )


def completion_of(
    request: Request,
    *,
    provider: str,
    text: str,
    finish_reason: str,
    num_prompt_tokens: int | None = None,
    num_completion_tokens: int | None = None,
    cost_usd: float = 0.0,
    num_reasoning_tokens: int | None = None,
    reasoning: str = "",
    response: str | None = None,
    logprobs: tuple[float, ...] | None = None,
) -> Completion:
    """Return the answer to a request, with the fields that the request determines filled in."""
    return Completion(
        id=request.id,
        stage=request.stage,
        provider=provider,
        problem_id=request.problem.id,
        prompt_id=request.prompt.id,
        attempt=request.attempt,
        text=text,
        finish_reason=finish_reason,
        num_prompt_tokens=num_prompt_tokens,
        num_completion_tokens=num_completion_tokens,
        cost_usd=cost_usd,
        num_reasoning_tokens=num_reasoning_tokens,
        reasoning=reasoning,
        response=response,
        logprobs=logprobs,
        template_id=request.prompt.template_id,
        exemplar_ids=request.prompt.exemplar_ids,
        exemplar_scores=request.prompt.exemplar_scores,
    )


def has_failed(completion: Completion) -> bool:
    """Return whether the request failed for good; asking again in a later run may succeed."""
    return completion.finish_reason.startswith(ERROR_PREFIX)
