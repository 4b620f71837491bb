"""Provider: anything that turns prompts into completions, in the words of its user.

    provider = make_provider("gpt-4o", settings)
    with provider.open(receipts) as exchange:
        exchange.ask(request_to(provider, stage=…, problem=…, prompt=…, attempt=0, seed=0))
        completion = exchange.answer()

The kinds are in modules of their own: `rewriter_provider`, `replay`, `openai_api`, `local`, `vllm`.
What an answer is worth is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from cudal1.billing import Try
from cudal1.candidate import Completion
from cudal1.problem import Problem
from cudal1.prompt import Prompt
from cudal1.provider_settings import (
    LocalSettings,
    OpenAISettings,
    ProviderSettings,
    ReplaySettings,
    RewriterSettings,
    VllmSettings,
)
from cudal1.record import Record, content_id

if TYPE_CHECKING:
    from cudal1.llm.local import LoadPolicy

EXHAUSTED = "exhausted"
"""Finish reason of a completion that stands for "no more answers to this problem": stop asking."""

ERROR_PREFIX = "error: "
"""How the finish reason of a request that failed for good begins."""


class Request(Record):
    """One question to one provider."""

    id: str
    """Names the question; becomes the id of its completion."""
    stage: str
    """The DVC stage that asks."""
    problem: Problem
    prompt: Prompt
    attempt: int
    """Counts from 0 within (provider, problem, prompt)."""
    seed: int
    """Entropy for providers that draw their own answers; others ignore it."""
    with_logprobs: bool = False
    """Whether the log-probability of each token of the answer is wanted."""


class Receipts(Protocol):
    """Who writes down what happens to requests: on disk when a call returns.

    Called from a provider's own threads, at the moment that it happens: what was paid for must
    outlive a kill of whoever was about to read it.
    """

    def tried(self, attempt: Try) -> None:
        """A try is about to leave, or has ended: then the same one again, with its outcome."""
        ...

    def arrived(self, completion: Completion, paid: Try | None = None) -> None:
        """An answer is here, as yet unread, and with it the try that brought it, if it cost.

        Both or neither are written down: a kill between them would put one cost into two bills.
        """
        ...

    def spent_usd(self, provider: str) -> float:
        """What all tries at a provider cost so far, those in doubt counted in full."""
        ...


class Exchange(Protocol):
    """An open line to a provider: requests go in, completions come out in any order."""

    def ask(self, request: Request) -> None:
        """Hand over a request; returns at once."""
        ...

    def answer(self) -> Completion:
        """Wait for the next completion; one for each request, `Receipts` has it already.

        A request that failed for good has an empty text and a finish reason that begins with
        `error: `.

        Raises:
            BudgetError: another request could cost more than is left; all that were sent were
                answered before.
            ProviderDownError: it does not answer any more; what had arrived was given out before.
            ProviderError: it is misconfigured or refuses us.
        """
        ...


class Provider(Protocol):
    """Who is asked."""

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
        """Whether a request's seed changes the answer."""
        ...

    @property
    def width(self) -> int:
        """Requests that it works on at a time."""
        ...

    def open(self, receipts: Receipts) -> AbstractContextManager[Exchange]:
        """An exchange; leaving it abandons what is still in flight.

        Raises:
            ProviderError: it cannot be started.
        """
        ...


def complete(
    provider: Provider, requests: Sequence[Request], receipts: Receipts
) -> Iterator[Completion]:
    """One completion for each request, as they arrive, in any order; raises as `Exchange.answer`.

    For who needs all the answers, whatever is in them.
    """
    with provider.open(receipts) as exchange:
        for request in requests:
            exchange.ask(request)
        for _ in requests:
            yield exchange.answer()


def request_to(
    provider: Provider, *, stage: str, problem: Problem, prompt: Prompt, attempt: int, seed: int
) -> Request:
    """The question, named so that it is never asked or paid for twice.

    The id covers provider, problem, prompt and attempt, and the seed where it matters; not the
    stage: two stages with the same question share the answer.
    """
    parts = [provider.fingerprint, problem.id, prompt.id, str(attempt)]
    if provider.is_seeded:
        parts.append(str(seed))
    return Request(
        id=content_id(*parts), stage=stage, problem=problem, prompt=prompt, attempt=attempt,
        seed=seed,
    )  # fmt: skip


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
    """The answer to a request, with what the request already says filled in."""
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
    )


def has_failed(completion: Completion) -> bool:
    """Whether the request failed for good; asking again in a later run may succeed."""
    return completion.finish_reason.startswith(ERROR_PREFIX)


def make_provider(name: str, settings: ProviderSettings, load_policy: LoadPolicy) -> Provider:
    """The provider that a section of params.yaml describes.

    Args:
        name: its key in the file.
        settings: its section.
        load_policy: loads or names a policy's folder; another world can.

    Raises:
        ProviderError: its recordings, its weights or its environment are missing.
    """
    match settings:
        case RewriterSettings():
            from cudal1.llm.rewriter_provider import RewriterProvider

            return RewriterProvider(name, settings)
        case ReplaySettings():
            from cudal1.llm.replay import ReplayProvider

            return ReplayProvider(name, settings)
        case OpenAISettings():
            from cudal1.llm.openai_api import OpenAIProvider

            return OpenAIProvider(name, settings)
        case LocalSettings():
            from cudal1.llm.local import LocalProvider

            return LocalProvider(name, settings, load_policy)
        case VllmSettings():
            from cudal1.llm.vllm import VllmProvider

            return VllmProvider(name, settings, load_policy.fingerprint)
