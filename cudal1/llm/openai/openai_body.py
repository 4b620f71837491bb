"""Reads and writes the bodies of OpenAI's chat completions; nothing in an answer is trusted."""

from __future__ import annotations

import json
from typing import Any

from cudal1.llm.openai.openai_fault import documents_in, words_in
from cudal1.llm.provider import Request
from cudal1.record import Record
from cudal1.settings.provider_settings import OpenAISettings

MAX_COUNT = 2**31 - 1
"""The most tokens that a count may give; a larger number is ignored."""
_FINISH_REASONS = {"stop", "length", "content_filter", "tool_calls", "function_call", "refusal"}
"""Finish reasons of the protocol; other words of a server must not be taken for one of ours."""
TOKENS_PER_MESSAGE = 64
"""More tokens than any chat template adds to a message."""


class Answer(Record):
    """The parts of a body that we keep."""

    text: str
    finish_reason: str
    reasoning: str
    num_prompt_tokens: int | None
    num_completion_tokens: int | None
    num_reasoning_tokens: int | None
    cost_usd: float | None
    """The answer's cost; None when the body does not say what was used."""
    logprobs: tuple[float, ...] | None


class MalformedError(Exception):
    """A body holds no answer; the message says what is wrong with it."""

    def __init__(self, what: str, cost_usd: float | None = None) -> None:
        super().__init__(what)
        self.cost_usd = cost_usd


def body_of(request: Request, settings: OpenAISettings) -> dict[str, Any]:
    """Return the body to send, without settings that are None: the server's defaults hold."""
    options = {
        "temperature": settings.temperature,
        "top_p": settings.top_p,
        "max_tokens": settings.max_tokens,
        "max_completion_tokens": settings.max_completion_tokens,
        "reasoning_effort": settings.reasoning_effort,
        "logprobs": request.with_logprobs or None,
    }
    return {
        "model": settings.model,
        "messages": request.prompt.as_chat(),
        **{name: value for name, value in options.items() if value is not None},
    }


def most_prompt_tokens(request: Request) -> int:
    """Return the most tokens that any tokenizer makes of the prompt: one for each byte."""
    return sum(
        len(message.content.encode("utf-8", "surrogatepass")) + TOKENS_PER_MESSAGE
        for message in request.prompt.messages
    )


def most_cost_usd(request: Request, settings: OpenAISettings) -> float | None:
    """Return the most that one try can cost; None where the length of an answer has no limit."""
    prompt_price = max(
        settings.usd_per_million_prompt_tokens, settings.usd_per_million_cached_prompt_tokens or 0
    )
    prompt = most_prompt_tokens(request) * prompt_price
    price = settings.usd_per_million_completion_tokens
    if price and settings.max_answer_tokens is None:
        return None
    return (prompt + (settings.max_answer_tokens or 0) * price) / 1e6


def read(body: str, settings: OpenAISettings) -> Answer:
    """Return the answer in a body.

    Raises:
        MalformedError: the body is no JSON, or holds no choice with a text.
    """
    try:
        content: Any = json.loads(body)
    except (ValueError, RecursionError) as error:
        why = " ".join(str(error).split())[:120]
        raise MalformedError(f"no JSON ({why}): {words_in(body)}") from error
    usage = _part(content, "usage")
    used = {
        "num_prompt_tokens": _count(usage, "prompt_tokens"),
        "num_completion_tokens": _count(usage, "completion_tokens"),
        "num_reasoning_tokens": _count(
            _part(usage, "completion_tokens_details"), "reasoning_tokens"
        ),
    }
    cost = _cost_usd(usage, settings)
    choices = _part(content, "choices")
    if not isinstance(choices, list) or not choices:
        raise MalformedError(f"no choices: {words_in(body)}", cost)
    message = _part(choices[0], "message")
    text = _text(_part(message, "content"))
    if text is None:
        raise MalformedError("content is no text", cost)
    if not text.strip() and isinstance(calls := _part(message, "tool_calls"), list) and calls:
        # no tool was offered: the server has taken the answer for a tool call
        text = json.dumps(calls)
    refused = not text and isinstance(_part(message, "refusal"), str)
    reasoning = _part(message, "reasoning_content") or _part(message, "reasoning")
    return Answer(
        text=text,
        **used,
        cost_usd=cost,
        logprobs=_logprobs(choices[0]),
        finish_reason="refusal" if refused else _finish_reason(choices[0]),
        reasoning=reasoning if isinstance(reasoning, str) else "",
    )


def cost_usd(body: str, settings: OpenAISettings) -> float | None:
    """Return the cost that a body, or the last stream event with one, states; None without one."""
    costs = [_cost_usd(_part(content, "usage"), settings) for content in documents_in(body)]
    return next((cost for cost in reversed(costs) if cost is not None), None)


def _part(content: Any, name: str) -> Any:
    return content.get(name) if isinstance(content, dict) else None


def _count(content: Any, name: str) -> int | None:
    value = _part(content, name)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= MAX_COUNT else None


def _finish_reason(choice: Any) -> str:
    reason = _part(choice, "finish_reason")
    if not isinstance(reason, str):
        return "stop"
    return reason if reason in _FINISH_REASONS else f"other: {reason[:60]}"


def _text(content: Any) -> str | None:
    """Return a text, or the joined texts of its parts; None counts as an empty text."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list):
        return None
    parts = [_part(part, "text") for part in content]
    return "".join(part for part in parts if isinstance(part, str))


def _cost_usd(usage: Any, settings: OpenAISettings) -> float | None:
    num_prompt, num_completion = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    if num_prompt is None or num_completion is None:
        return None
    # some servers count reasoning beside the completion, and only in the total
    total = _count(usage, "total_tokens") or 0
    num_completion = max(num_completion, total - num_prompt)
    cached = min(_count(_part(usage, "prompt_tokens_details"), "cached_tokens") or 0, num_prompt)
    price = settings.usd_per_million_prompt_tokens
    cached_price = settings.usd_per_million_cached_prompt_tokens
    return (
        (num_prompt - cached) * price
        + cached * (price if cached_price is None else cached_price)
        + num_completion * settings.usd_per_million_completion_tokens
    ) / 1e6


def _logprobs(choice: Any) -> tuple[float, ...] | None:
    tokens = _part(_part(choice, "logprobs"), "content")
    if not isinstance(tokens, list):
        return None
    values = [_part(token, "logprob") for token in tokens]
    if not all(isinstance(value, int | float) and -1e9 < value < 1e9 for value in values):
        return None
    return tuple(float(value) for value in values)
