"""Limits requests and tokens a minute to what a provider allows, so that no 429 is provoked."""

from __future__ import annotations

from aiolimiter import AsyncLimiter

from cudal1.llm.openai.openai_body import most_prompt_tokens
from cudal1.llm.provider import Request
from cudal1.settings.provider_settings import OpenAISettings

BURST_S = 5.0
"""Seconds of allowance in one portion. No minute has more than a twelfth above its allowance."""


class Pace:
    """A limiter that makes requests wait until they may leave."""

    def __init__(self, settings: OpenAISettings) -> None:
        self._requests = _limiter(settings.requests_per_minute)
        self._tokens = _limiter(settings.tokens_per_minute)
        self._answer_tokens = settings.max_answer_tokens or 0

    async def wait(self, request: Request) -> None:
        """Return when the request may leave; it counts with the longest answer that it allows."""
        await _acquire(self._requests, 1.0)
        await _acquire(self._tokens, most_prompt_tokens(request) + self._answer_tokens)


def _limiter(per_minute: float | None) -> AsyncLimiter | None:
    if per_minute is None:
        return None
    # at the slowest, one request at a time
    return AsyncLimiter(max(per_minute * BURST_S / 60, 1.0), max(BURST_S, 60 / per_minute))


async def _acquire(limiter: AsyncLimiter | None, amount: float) -> None:
    """Take an amount that may be larger than a portion."""
    while limiter is not None and amount > 0:
        taken = min(amount, limiter.max_rate)
        await limiter.acquire(taken)
        amount -= taken
