"""Provider: anything that turns prompts into completions, in the words of its user.

    provider = make_provider("gpt-4o", settings)
    requests = [request_to(provider, stage=…, problem=…, prompt=…, attempt=0, seed=0)]
    for completion in provider.complete(requests):
        ...

The kinds are in modules of their own: `rewriter_provider`, `replay`, `openai_api`. What an answer
is worth is not known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from cudal1.candidate import Completion
from cudal1.problem import Problem
from cudal1.prompt import Prompt
from cudal1.provider_settings import (
    OpenAISettings,
    ProviderSettings,
    ReplaySettings,
    RewriterSettings,
)
from cudal1.record import Record, content_id

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

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion]:
        """One completion for each request, as they arrive, in any order.

        A request that failed for good yields an empty text and a finish reason that begins with
        `error: `. Closing the iterator abandons what is still in flight.

        Raises:
            ProviderError: the provider is down, misconfigured or refuses us; completions that
                had arrived were yielded before.
        """
        ...


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
        exemplar_ids=request.prompt.exemplar_ids,
    )


def has_failed(completion: Completion) -> bool:
    """Whether the request failed for good; asking again in a later run may succeed."""
    return completion.finish_reason.startswith(ERROR_PREFIX)


def make_provider(name: str, settings: ProviderSettings) -> Provider:
    """The provider that a section of params.yaml describes.

    Raises:
        ProviderError: its key or its recordings are missing.
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
