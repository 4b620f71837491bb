"""What a section `generate.providers.NAME` of params.yaml may hold, by its `kind`.

The providers themselves are `cudal1.llm`. No defaults, as in `cudal1.params`: a knob that is not in
the file is invisible to DVC. Keys are never here, only the name of the variable that holds one.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cudal1.record import Record

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""What an environment variable is called; no key looks like that."""


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


class AnswerSettings(Record):
    """How a language model draws an answer: the same words whoever runs it."""

    temperature: float | None = Field(ge=0)
    """None is not sent to an endpoint: reasoning models refuse it. To policies of ours it is 1."""
    top_p: float | None = Field(gt=0, le=1)
    """None as for the temperature."""


class EndpointSettings(AnswerSettings):
    """How a server is asked, wherever it runs."""

    max_tokens: int | None = Field(gt=0)
    """Length of an answer; None is not sent."""
    concurrency: int = Field(gt=0, le=1000)
    """Requests in flight, at most."""
    timeout_s: float = Field(gt=0)
    """Until something of an answer arrives, and from each piece to the next."""
    max_retries: int = Field(ge=0)
    """Further tries after 408, 409, 429, 5xx, a timeout or a broken connection; with back-off."""


class OpenAISettings(EndpointSettings):
    """An endpoint that speaks OpenAI's chat completions."""

    kind: Literal["openai"]
    model: str
    base_url: str = Field(pattern=r"^https?://[^/\s]+")
    """Such as `https://api.openai.com/v1` or `http://127.0.0.1:8000/v1`."""
    api_key_env: str | None = Field(pattern=VARIABLE)
    """The environment variable that holds the key; None for a server that asks for none."""
    max_completion_tokens: int | None = Field(gt=0)
    """OpenAI's reasoning models want this name in place of `max_tokens`; None is not sent."""
    reasoning_effort: str | None
    """Such as `high`; None is not sent."""
    usd_per_million_prompt_tokens: float = Field(ge=0)
    usd_per_million_cached_prompt_tokens: float | None = Field(ge=0)
    """Of prompt tokens that the server says it had cached; None: as any other."""
    usd_per_million_completion_tokens: float = Field(ge=0)
    """Reasoning tokens count as these."""
    requests_per_minute: float | None = Field(gt=0)
    """None: as many as are answered."""
    tokens_per_minute: float | None = Field(gt=0)
    """Prompt and longest answer; None: no limit."""
    budget_usd: float | None = Field(ge=0)
    """What everything that was ever asked of this provider may cost, by this ledger. None: no
    limit. Needs a limit on an answer's length, or the cost of a request could not be foretold."""

    @model_validator(mode="after")
    def _budget_can_be_kept(self) -> Self:
        if self.max_tokens is not None and self.max_completion_tokens is not None:
            raise ValueError("max_tokens and max_completion_tokens: give one, the other null")
        if self.budget_usd is not None:
            if self.max_answer_tokens is None:
                raise ValueError("budget_usd needs max_tokens or max_completion_tokens")
            if not self.usd_per_million_completion_tokens:
                raise ValueError("budget_usd needs prices above 0")
        return self

    @property
    def max_answer_tokens(self) -> int | None:
        """The longest answer, under whichever name it was given."""
        return self.max_completion_tokens or self.max_tokens


class LocalSettings(AnswerSettings):
    """A policy's folder, sampled from in this process with transformers."""

    kind: Literal["local"]
    path: str
    """Such as `data/policy/sft`."""
    max_tokens: int = Field(gt=0)
    """Length of an answer: nobody else would end it."""
    batch_size: int = Field(gt=0)
    """Answers sampled at a time."""


class VllmSettings(EndpointSettings):
    """A policy's folder behind a vLLM server that we start and stop."""

    kind: Literal["vllm"]
    path: str
    python: str
    """The interpreter of the environment that holds vLLM: `make vllm` makes `.venv-vllm`."""
    max_model_tokens: int = Field(gt=0)
    """Prompt and answer together."""
    gpu_memory_share: float = Field(gt=0, lt=1)
    """Of a GPU's memory, what the server takes; whoever judges there needs the rest."""
    start_timeout_s: float = Field(gt=0)
    """From start to healthy; minutes on a small machine."""


ProviderSettings = Annotated[
    RewriterSettings | ReplaySettings | OpenAISettings | LocalSettings | VllmSettings,
    Field(discriminator="kind"),
]
