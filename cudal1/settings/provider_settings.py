"""The settings in a section `generate.providers.NAME` of params.yaml, by its `kind`.

The providers themselves are `cudal1.llm`. There are no defaults, as in `cudal1.settings.params`: a
setting that is not in the file is invisible to DVC. Keys are never here, only the name of the
variable that holds one.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cudal1.record import Record

VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"
"""Pattern of an environment variable's name; no key looks like that."""


class RewriterSettings(Record):
    """A rule-based teacher of `cudal1.teachers`."""

    kind: Literal["rewriter"]
    teacher: str
    """Name of one of the seven teachers."""


class ReplaySettings(Record):
    """Recorded completions, matched by problem key."""

    kind: Literal["replay"]
    path: str | None
    """A `.jsonl` file or a folder of them; a checkout of the CUDA-L1 release, or a file of its
    `optimized_cuda_code`; None: the recordings that ship with cudal1."""


class AnswerSettings(Record):
    """Settings for drawing an answer from a language model; providers share these names."""

    temperature: float | None = Field(ge=0)
    """Sampling temperature. None is not sent to an endpoint, since reasoning models refuse it; for
    our own policies None is 1."""
    top_p: float | None = Field(gt=0, le=1)
    """Sampling threshold; None as for the temperature."""


class EndpointSettings(AnswerSettings):
    """Settings for asking a server, wherever it runs."""

    max_tokens: int | None = Field(gt=0)
    """Maximum tokens of an answer; None is not sent."""
    concurrency: int = Field(gt=0, le=1000)
    """Maximum number of requests in flight."""
    timeout_s: float = Field(gt=0)
    """Seconds until something of an answer arrives, and from each piece to the next."""
    max_retries: int = Field(ge=0)
    """Number of retries after 408, 409, 429, 5xx, a timeout or a broken connection; with
    back-off."""


class OpenAISettings(EndpointSettings):
    """An endpoint that speaks OpenAI's chat completions."""

    kind: Literal["openai"]
    model: str
    base_url: str = Field(pattern=r"^https?://[^/\s]+")
    """Address such as `https://api.openai.com/v1` or `http://127.0.0.1:8000/v1`."""
    api_key_env: str | None = Field(pattern=VARIABLE)
    """The environment variable that holds the key; None for a server without keys."""
    max_completion_tokens: int | None = Field(gt=0)
    """Maximum tokens of an answer, under the name that OpenAI's reasoning models need instead of
    `max_tokens`; None is not sent."""
    reasoning_effort: str | None
    """Effort such as `high`; None is not sent."""
    usd_per_million_prompt_tokens: float = Field(ge=0)
    usd_per_million_cached_prompt_tokens: float | None = Field(ge=0)
    """Price of prompt tokens that the server says it had cached; None: as any other."""
    usd_per_million_completion_tokens: float = Field(ge=0)
    """Price of completion tokens, reasoning tokens included."""
    requests_per_minute: float | None = Field(gt=0)
    """Maximum requests a minute; None: no limit."""
    tokens_per_minute: float | None = Field(gt=0)
    """Maximum tokens a minute, prompt and longest answer counted; None: no limit."""
    budget_usd: float | None = Field(ge=0)
    """US dollars that all requests to this provider may cost, ever, by this ledger. None: no limit.
    A budget needs a limit on an answer's length, or the cost of a request could not be forecast."""

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
        """The maximum tokens of an answer, under either name."""
        return self.max_completion_tokens or self.max_tokens


class LocalSettings(AnswerSettings):
    """A policy's folder, sampled from in this process with transformers."""

    kind: Literal["local"]
    path: str
    """Folder such as `data/policy/sft`."""
    max_tokens: int = Field(gt=0)
    """Maximum tokens of an answer: nothing else ends it."""
    batch_size: int = Field(gt=0)
    """Number of answers sampled at a time."""


class VllmSettings(EndpointSettings):
    """A policy's folder behind a vLLM server that we start and stop."""

    kind: Literal["vllm"]
    path: str
    python: str
    """The interpreter of the environment that holds vLLM: `make vllm` makes `.venv-vllm`."""
    max_model_tokens: int = Field(gt=0)
    """Maximum tokens of prompt and answer together."""
    gpu_memory_share: float = Field(gt=0, lt=1)
    """Share of a GPU's memory that the server takes; a judge on that GPU needs the rest."""
    start_timeout_s: float = Field(gt=0)
    """Seconds from start to healthy; minutes pass on a small machine."""


ProviderSettings = Annotated[
    RewriterSettings | ReplaySettings | OpenAISettings | LocalSettings | VllmSettings,
    Field(discriminator="kind"),
]
