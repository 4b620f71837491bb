"""What a section `generate.providers.NAME` of params.yaml may hold, by its `kind`.

The providers themselves are `cudal1.llm`. No defaults, as in `cudal1.params`: a knob that is not in
the file is invisible to DVC. Keys are never here, only the name of the variable that holds one.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from cudal1.record import Record


class RewriterSettings(Record):
    """A rule-based teacher of `cudal1.llm.rewriter`."""

    kind: Literal["rewriter"]
    teacher: str
    """Which of its six skills."""


class ReplaySettings(Record):
    """Recorded completions, matched by problem key."""

    kind: Literal["replay"]
    path: str | None
    """A `.jsonl` file or a folder of them; None is the recordings that ship with cudal1."""


class OpenAISettings(Record):
    """An endpoint that speaks OpenAI's chat completions."""

    kind: Literal["openai"]
    model: str
    base_url: str
    """Such as `https://api.openai.com/v1` or `http://127.0.0.1:8000/v1`."""
    api_key_env: str | None
    """The environment variable that holds the key; None for a server that asks for none."""
    temperature: float | None = Field(ge=0)
    """None is not sent: reasoning models refuse it."""
    top_p: float | None = Field(gt=0, le=1)
    """None is not sent."""
    max_tokens: int | None = Field(gt=0)
    """Length of an answer; None is not sent."""
    max_completion_tokens: int | None = Field(gt=0)
    """OpenAI's reasoning models want this name in place of `max_tokens`; None is not sent."""
    usd_per_million_prompt_tokens: float = Field(ge=0)
    usd_per_million_completion_tokens: float = Field(ge=0)
    concurrency: int = Field(gt=0)
    """Requests in flight, at most."""
    timeout_s: float = Field(gt=0)
    """For one try of one request."""
    max_retries: int = Field(ge=0)
    """Further tries after 408, 409, 429, 5xx, a timeout or a broken connection; with back-off."""


ProviderSettings = Annotated[
    RewriterSettings | ReplaySettings | OpenAISettings, Field(discriminator="kind")
]
