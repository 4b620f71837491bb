"""A provider that samples from a policy in this process.

The sampling itself is `cudal1.train.policy`. It belongs to another world, so the caller hands it in
as `LoadPolicy`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Protocol

from cudal1.candidate import Completion
from cudal1.errors import ProviderError, TrainingError
from cudal1.llm.provider import ERROR_PREFIX, Receipts, Request, completion_of
from cudal1.record import content_id
from cudal1.settings.provider_settings import LocalSettings

_ANSWER_FIELDS = {"temperature", "top_p", "max_tokens"}
"""Settings that decide an answer; the batch size does not."""


class SampledAnswer(Protocol):
    """An answer of a loaded policy."""

    @property
    def text(self) -> str:
        """The answer's text, without the end token."""
        ...

    @property
    def finish_reason(self) -> str:
        """The reason for the answer's end: `stop`, or `length` when it was cut."""
        ...

    @property
    def num_prompt_tokens(self) -> int:
        """Tokens of the prompt, template included."""
        ...

    @property
    def num_completion_tokens(self) -> int:
        """Tokens of the answer, the end token included, as servers count."""
        ...

    @property
    def logprobs(self) -> tuple[float, ...] | None:
        """Log-probability of each token, the end token included, before temperature and top_p."""
        ...


class LoadedPolicy(Protocol):
    """A policy that can be sampled from in this process (`cudal1.train.policy.Sampler`)."""

    @property
    def num_positions(self) -> int | None:
        """The most tokens that prompt and answer may have together."""
        ...

    def num_tokens(self, chat: Sequence[dict[str, str]]) -> int:
        """Return the number of tokens of a prompt, template included."""
        ...

    def sample(
        self,
        chats: Sequence[Sequence[dict[str, str]]],
        *,
        temperature: float,
        top_p: float,
        max_new_tokens: int,
        seed: Sequence[int],
        batch_size: int,
        with_logprobs: bool = False,
    ) -> Sequence[SampledAnswer]:
        """Return one answer to each chat, in order, each drawn from its own seed."""
        ...


class LoadPolicy(Protocol):
    """A loader of policy folders, which can also fingerprint one unloaded (the class `Sampler`)."""

    def __call__(self, folder: Path, /) -> LoadedPolicy:
        """Return the policy, ready to be sampled from; raise TrainingError when it is damaged."""
        ...

    def fingerprint(self, folder: Path, /) -> str:
        """Return a hash of the policy's weights and tokenizer, without loading the policy."""
        ...


class LocalProvider:
    """A provider that samples from a policy's folder with transformers.

    The same request gets the same answer in any batch, since each answer is drawn from its own
    seed. Only rounding depends on the batch: once in a long while a token comes out differently.
    The same requests in the same order on the same machine give exactly the same answers.

    A temperature or top_p of None is 1: the policy's own distribution. Sampling settings in its
    `generation_config.json` do not apply.
    """

    is_seeded = True

    def __init__(self, name: str, settings: LocalSettings, load_policy: LoadPolicy) -> None:
        """Remember the policy's folder; raise ProviderError when it holds no policy."""
        self.name = name
        self._settings = settings
        self._folder = policy_folder(name, settings.path)
        self._load_policy = load_policy

    @property
    def fingerprint(self) -> str:
        """Content id of the weights, the tokenizer and the sampling settings."""
        drawn = self._settings.model_dump_json(include=_ANSWER_FIELDS)
        return content_id("local", self._weights_id, drawn)

    @cached_property
    def _weights_id(self) -> str:
        return self._load_policy.fingerprint(self._folder)  # reads all weights

    @property
    def width(self) -> int:
        """Answers that are sampled at a time."""
        return self._settings.batch_size

    @contextmanager
    def open(self, receipts: Receipts) -> Generator[Batches]:
        """Open an exchange that holds the loaded policy."""
        try:
            policy = self._load_policy(self._folder)
        except TrainingError as error:
            raise ProviderError(f"provider {self.name}: {error}") from error
        yield Batches(self.name, self._settings, policy, receipts)


class Batches:
    """An exchange that samples the waiting requests in batches, whenever an answer is needed."""

    def __init__(
        self, name: str, settings: LocalSettings, policy: LoadedPolicy, receipts: Receipts
    ) -> None:
        self._name = name
        self._settings = settings
        self._max_tokens = settings.max_tokens
        self._policy = policy
        self._receipts = receipts
        self._waiting: deque[Request] = deque()
        self._answered: deque[Completion] = deque()

    def ask(self, request: Request) -> None:
        """Put the request in the queue."""
        self._waiting.append(request)

    def answer(self) -> Completion:
        """Return the completion of the oldest request, sampling its whole batch when needed."""
        if not self._answered:
            count = min(self._settings.batch_size, len(self._waiting))
            for completion in self._sample([self._waiting.popleft() for _ in range(count)]):
                self._receipts.arrived(completion)
                self._answered.append(completion)
        return self._answered.popleft()

    def _sample(self, batch: Sequence[Request]) -> list[Completion]:
        """Return the completions of a batch, in order."""
        failures = {request.id: self._too_long(request) for request in batch}
        fitting = [request for request in batch if not failures[request.id]]
        sampled = self._policy.sample(
            [request.prompt.as_chat() for request in fitting],
            temperature=1.0 if self._settings.temperature is None else self._settings.temperature,
            top_p=1.0 if self._settings.top_p is None else self._settings.top_p,
            max_new_tokens=self._max_tokens,
            seed=[seed_of(request) for request in fitting],
            batch_size=self._settings.batch_size,
            with_logprobs=any(request.with_logprobs for request in fitting),
        )
        answers = iter(sampled)
        return [
            self._failed(request, failures[request.id])
            if failures[request.id]
            else self._completion(request, next(answers))
            for request in batch
        ]

    def _too_long(self, request: Request) -> str:
        """Return why the request cannot be answered, as a server would say it; empty if it can."""
        limit = self._policy.num_positions
        num_prompt_tokens = self._policy.num_tokens(request.prompt.as_chat())
        if limit is None or num_prompt_tokens + self._max_tokens <= limit:
            return ""
        return (
            f"prompt of {num_prompt_tokens} tokens and answer of {self._max_tokens} exceed the "
            f"policy's {limit}"
        )

    def _completion(self, request: Request, sampled: SampledAnswer) -> Completion:
        return completion_of(
            request,
            provider=self._name,
            text=sampled.text,
            finish_reason=sampled.finish_reason,
            num_prompt_tokens=sampled.num_prompt_tokens,
            num_completion_tokens=sampled.num_completion_tokens,
            logprobs=sampled.logprobs if request.with_logprobs else None,
        )

    def _failed(self, request: Request, why: str) -> Completion:
        return completion_of(
            request, provider=self._name, text="", finish_reason=f"{ERROR_PREFIX}{why}"
        )


def policy_folder(name: str, path: str) -> Path:
    """Return the absolute path of a policy.

    Raises:
        ProviderError: the folder holds no policy.
    """
    folder = Path(path).absolute()
    if not (folder / "config.json").is_file():
        raise ProviderError(
            f"provider {name}: {path} holds no policy (config.json is missing); correct its path "
            "in params.yaml, or run the stage that makes it"
        )
    return folder


def seed_of(request: Request) -> int:
    """Return the request's 31-bit seed for sampling.

    The seed differs between attempts and between prompts. It does not depend on the weights.
    """
    drawn = content_id(str(request.seed), request.prompt.id, str(request.attempt))
    return int(drawn, 16) >> 33
