"""Any endpoint that speaks OpenAI's chat completions, through the official client.

The client retries (408, 409, 429, 5xx, timeouts, broken connections; exponential back-off that
honours Retry-After); what still fails is data. An event loop in a thread of its own keeps requests
moving while the caller judges what has arrived.

This is the package's only file with concurrency in requests, and its only use of secrets.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any, cast

import httpx2
import openai
from openai.types.chat import ChatCompletion

from cudal1.candidate import Completion
from cudal1.errors import ProviderError
from cudal1.llm.provider import ERROR_PREFIX, Request, completion_of, has_failed
from cudal1.provider_settings import OpenAISettings
from cudal1.record import content_id

MAX_FAILURES_IN_A_ROW = 8
"""So many requests that failed for good, with no success between, mean that the server is down."""

_ANSWER_FIELDS = {
    "model", "base_url", "temperature", "top_p", "max_tokens", "max_completion_tokens"
}  # fmt: skip
"""The settings that decide an answer; price, patience and concurrency may change for free."""

_MAX_RETRY_AFTER_S = 120.0
"""The longest pause that a server may ask of the client."""


class OpenAIProvider:
    """A model behind an endpoint."""

    is_seeded = False

    def __init__(self, name: str, settings: OpenAISettings) -> None:
        """Raises ProviderError when the key's environment variable is not set."""
        self.name = name
        self.fingerprint = content_id(
            "openai", settings.model_dump_json(include=_ANSWER_FIELDS)
        )  # fmt: skip
        self._settings = settings
        self._api_key = _api_key(name, settings)

    def complete(self, requests: Sequence[Request]) -> Iterator[Completion]:
        """Completions as they arrive, with at most `concurrency` requests in flight.

        Raises:
            ProviderError: no connection, refused key, unknown model, or eight failures in a row.
        """
        arrived: queue.SimpleQueue[Completion | BaseException] = queue.SimpleQueue()
        loop = asyncio.new_event_loop()
        work = loop.create_task(self._ask_all(requests, arrived))
        thread = threading.Thread(
            target=_run, args=(loop, work, arrived), name=f"provider-{self.name}", daemon=True
        )
        thread.start()
        num_failed = 0
        try:
            for _ in requests:
                item = arrived.get()
                if isinstance(item, BaseException):
                    raise item
                yield item
                num_failed = num_failed + 1 if has_failed(item) else 0
                if num_failed >= MAX_FAILURES_IN_A_ROW:
                    raise ProviderError(
                        f"provider {self.name}: {num_failed} requests in a row failed, the last "
                        f"with {item.finish_reason!r}; run again when {self._settings.base_url} "
                        "is well"
                    )
        finally:
            if thread.is_alive():
                loop.call_soon_threadsafe(work.cancel)
            thread.join()
            loop.close()

    async def _ask_all(
        self,
        requests: Sequence[Request],
        arrived: queue.SimpleQueue[Completion | BaseException],
    ) -> None:
        settings = self._settings
        waiting = iter(requests)
        async with openai.AsyncOpenAI(
            api_key=self._api_key,
            base_url=settings.base_url,
            timeout=settings.timeout_s,
            max_retries=settings.max_retries,
        ) as client:

            async def ask_next() -> None:
                for request in waiting:
                    arrived.put(await self._ask(client, request))

            async with asyncio.TaskGroup() as group:
                for _ in range(min(settings.concurrency, len(requests))):
                    group.create_task(ask_next())

    async def _ask(self, client: openai.AsyncOpenAI, request: Request) -> Completion:
        try:
            # the client's own limit is per read: a slow drip would never end
            async with asyncio.timeout(self._patience_s):
                create: Any = client.chat.completions.create
                answer: object = await create(**self._body(request))
        except openai.APITimeoutError:
            return self._failed(request, f"no answer within {self._settings.timeout_s:g} s")
        except TimeoutError:
            return self._failed(request, "the answer dripped in too slowly")
        except openai.APIConnectionError as error:
            if not isinstance(error.__cause__, httpx2.ConnectError):
                return self._failed(request, f"connection broke: {_line(error.__cause__ or error)}")
            raise ProviderError(
                f"provider {self.name}: cannot connect to {self._settings.base_url} "
                f"({_line(error.__cause__)}); correct base_url or start the server"
            ) from error
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise ProviderError(
                f"provider {self.name}: {self._settings.base_url} refuses the key in "
                f"{self._settings.api_key_env or 'no variable'} ({_line(error)})"
            ) from error
        except openai.NotFoundError as error:
            raise ProviderError(
                f"provider {self.name}: {self._settings.base_url} has no model "
                f"{self._settings.model!r}, or no such path ({_line(error)})"
            ) from error
        except openai.APIStatusError as error:
            return self._failed(request, f"HTTP {error.status_code}: {_line(error)}")
        except (openai.OpenAIError, ValueError) as error:  # ValueError: JSON that is none
            return self._failed(request, f"malformed answer: {_line(error)}")
        return self._read(request, answer)

    @property
    def _patience_s(self) -> float:
        settings = self._settings
        return (settings.timeout_s + _MAX_RETRY_AFTER_S) * (settings.max_retries + 1)

    def _body(self, request: Request) -> dict[str, Any]:
        settings = self._settings
        options = {
            "temperature": settings.temperature,
            "top_p": settings.top_p,
            "max_tokens": settings.max_tokens,
            "max_completion_tokens": settings.max_completion_tokens,
        }
        return {
            "model": settings.model,
            "messages": request.prompt.as_chat(),
            **{name: value for name, value in options.items() if value is not None},
        }

    def _read(self, request: Request, answer: object) -> Completion:
        """The completion in a parsed body, of which the client has checked no field."""
        if not isinstance(answer, ChatCompletion) or not answer.choices:
            return self._failed(request, "malformed answer: no choices")
        choice: Any = answer.choices[0]
        usage: Any = answer.usage
        text = getattr(getattr(choice, "message", None), "content", None)
        finish_reason = getattr(choice, "finish_reason", None)
        if not isinstance(text, str | None):
            return self._failed(request, "malformed answer: content is no text")
        num_prompt = _count(getattr(usage, "prompt_tokens", None))
        num_completion = _count(getattr(usage, "completion_tokens", None))
        settings = self._settings
        return completion_of(
            request,
            provider=self.name,
            text=text or "",
            finish_reason=finish_reason if isinstance(finish_reason, str) else "stop",
            num_prompt_tokens=num_prompt,
            num_completion_tokens=num_completion,
            cost_usd=(
                (num_prompt or 0) * settings.usd_per_million_prompt_tokens
                + (num_completion or 0) * settings.usd_per_million_completion_tokens
            )
            / 1e6,
        )

    def _failed(self, request: Request, why: str) -> Completion:
        return completion_of(
            request, provider=self.name, text="", finish_reason=f"{ERROR_PREFIX}{why}"
        )


def _run(
    loop: asyncio.AbstractEventLoop,
    work: asyncio.Task[None],
    arrived: queue.SimpleQueue[Completion | BaseException],
) -> None:
    """Drive the loop until the work ends; hand its failure, if any, to the waiting caller."""
    asyncio.set_event_loop(loop)
    outcome = loop.run_until_complete(asyncio.gather(work, return_exceptions=True))[0]
    loop.run_until_complete(loop.shutdown_asyncgens())
    if isinstance(outcome, BaseException):
        arrived.put(_first(outcome))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _api_key(name: str, settings: OpenAISettings) -> str:
    if settings.api_key_env is None:
        return "none"  # the client insists on one
    key = os.environ.get(settings.api_key_env, "").strip()
    if not key:
        raise ProviderError(
            f"provider {name}: environment variable {settings.api_key_env} is not set; "
            "export the key, or remove the provider from params.yaml"
        )
    return key


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value >= 0 else None


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
