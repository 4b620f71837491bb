"""Any endpoint that speaks OpenAI's chat completions, through the official client.

The client retries (408, 409, 429, 5xx, timeouts, broken connections; exponential back-off that
honours Retry-After); what still fails is data. An event loop in a thread of its own keeps requests
moving while the caller judges what has arrived; each try and each answer is written down there, at
the moment that it happens.

Every request carries its id as Idempotency-Key: a server that honours it charges once, however
often we ask. This is the package's only file with concurrency in requests, and its only use of
secrets.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any, cast

import httpx2
import openai

from cudal1.billing import TryOutcome
from cudal1.candidate import Completion
from cudal1.errors import BudgetError, ProviderDownError, ProviderError
from cudal1.llm import openai_body
from cudal1.llm.openai_body import MalformedError
from cudal1.llm.pace import Pace
from cudal1.llm.provider import ERROR_PREFIX, Receipts, Request, completion_of, has_failed
from cudal1.llm.spending import Purse, Tries
from cudal1.provider_settings import OpenAISettings
from cudal1.record import content_id

MAX_FAILURES_IN_A_ROW = 8
"""So many requests that failed for good, with no success between, mean that the server is down."""

_ANSWER_FIELDS = {
    "model", "base_url", "temperature", "top_p", "max_tokens", "max_completion_tokens",
    "reasoning_effort",
}  # fmt: skip
"""The settings that decide an answer; price, patience and concurrency may change for free."""

_KEY_HEADER = "Idempotency-Key"
_MAX_RETRY_AFTER_S = 120.0
"""The longest pause that a server may ask of the client."""


class OpenAIProvider:
    """A model behind an endpoint."""

    is_seeded = False

    def __init__(self, name: str, settings: OpenAISettings) -> None:
        self.name = name
        self.fingerprint = content_id(
            "openai", settings.model_dump_json(include=_ANSWER_FIELDS)
        )  # fmt: skip
        self._settings = settings

    @property
    def width(self) -> int:
        """Requests in flight, at most."""
        return self._settings.concurrency

    @contextmanager
    def open(self, receipts: Receipts) -> Generator[OpenAIExchange]:
        """An exchange with at most `concurrency` requests in flight.

        Raises:
            ProviderError: the key's environment variable is not set.
        """
        api_key = _api_key(self.name, self._settings)
        exchange = OpenAIExchange(self.name, self._settings, api_key, receipts)
        try:
            yield exchange
        finally:
            exchange.close()


class OpenAIExchange:
    """Requests on their way to one endpoint, and answers on their way back."""

    def __init__(
        self, name: str, settings: OpenAISettings, api_key: str, receipts: Receipts, *,
        extra_body: Callable[[Request], Mapping[str, object]] = lambda request: {},
    ) -> None:  # fmt: skip
        """`extra_body` is what a server of our own is told beside what all understand."""
        self._extra_body = extra_body
        self._name = name
        self._settings = settings
        self._api_key = api_key
        self._receipts = receipts
        self._purse = Purse(name, settings.budget_usd, spent_usd=receipts.spent_usd(name))
        self._pace = Pace(settings)
        self._tries: dict[str, Tries] = {}
        self._num_failed = 0
        self._ended: BaseException | None = None
        self._waiting: asyncio.Queue[Request] = asyncio.Queue()
        self._arrived: queue.SimpleQueue[Completion | BaseException] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._work = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name=f"provider-{name}", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> None:
        """Hand over a request; returns at once."""
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, request)

    def answer(self) -> Completion:
        """Wait for the next completion.

        Raises:
            BudgetError: see `Purse`.
            ProviderDownError: no connection, or eight failures in a row.
            ProviderError: refused key, unknown model.
        """
        item = self._ended or self._arrived.get()
        if isinstance(item, BaseException):
            self._ended = item
            raise item
        self._num_failed = self._num_failed + 1 if has_failed(item) else 0
        if self._num_failed >= MAX_FAILURES_IN_A_ROW:
            self._ended = ProviderDownError(
                f"provider {self._name}: {self._num_failed} requests in a row failed, the last "
                f"with {item.finish_reason!r}; run again when {self._settings.base_url} is well"
            )
        return item

    def close(self) -> None:
        """Abandon what is in flight."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._work.cancel)
        self._thread.join()
        self._loop.close()

    # --- in the loop's thread --------------------------------------------------------------------

    def _run(self) -> None:
        """Drive the loop until the work ends; hand its failure, if any, to the waiting caller."""
        asyncio.set_event_loop(self._loop)
        work = asyncio.gather(self._work, return_exceptions=True)
        outcome = self._loop.run_until_complete(work)[0]
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        if isinstance(outcome, BaseException):
            self._arrived.put(_first(outcome))

    async def _serve(self) -> None:
        settings = self._settings
        http = openai.DefaultAsyncHttpxClient(
            event_hooks={"request": [self._on_request], "response": [self._on_response]},
            # a proxy that the environment names knows nothing of this machine's own servers
            trust_env=not _is_here(settings.base_url),
        )
        async with openai.AsyncOpenAI(
            api_key=self._api_key, base_url=settings.base_url, timeout=settings.timeout_s,
            max_retries=settings.max_retries, http_client=http,
        ) as client, asyncio.TaskGroup() as group:  # fmt: skip
            for _ in range(settings.concurrency):
                group.create_task(self._ask_what_waits(client))

    async def _ask_what_waits(self, client: openai.AsyncOpenAI) -> None:
        while True:
            request = await self._waiting.get()
            at_most_usd = openai_body.most_cost_usd(request, self._settings)
            await self._pace.wait(request)
            async with self._purse.reserved(at_most_usd or 0.0):
                tries = Tries(
                    request, self._name, at_most_usd=at_most_usd, receipts=self._receipts,
                    purse=self._purse,
                )  # fmt: skip
                self._tries[request.id] = tries
                try:
                    completion = await self._ask(client, request, tries)
                finally:
                    tries.end_unanswered("abandoned")
                    del self._tries[request.id]
                self._receipts.arrived(completion, tries.paid)
            self._arrived.put(completion)

    async def _on_request(self, request: httpx2.Request) -> None:
        """The client is about to try; tracing tells whether that went over the wire."""
        tries = self._tries[request.headers[_KEY_HEADER]]
        tries.begin()

        async def traced(event: str, info: object) -> None:
            if event.endswith("send_request_headers.started"):
                tries.leave()

        request.extensions["trace"] = traced

    async def _on_response(self, response: httpx2.Response) -> None:
        if response.is_error:
            tries = self._tries[response.request.headers[_KEY_HEADER]]
            tries.end(TryOutcome.REFUSED, cost_usd=0.0, said=f"HTTP {response.status_code}")

    async def _ask(
        self, client: openai.AsyncOpenAI, request: Request, tries: Tries
    ) -> Completion:  # fmt: skip
        try:
            # the client's own limit is per read: a slow drip would never end
            async with asyncio.timeout(self._patience_s):
                create: Any = client.chat.completions.with_raw_response.create
                raw: Any = await create(
                    **openai_body.body_of(request, self._settings),
                    extra_body=self._extra_body(request),
                    extra_headers={_KEY_HEADER: request.id},
                )
        except BudgetError as error:
            return self._failed(request, _line(error))
        except openai.APITimeoutError:
            return self._failed(request, f"no answer within {self._settings.timeout_s:g} s")
        except TimeoutError:
            return self._failed(request, "the answer dripped in too slowly")
        except openai.APIConnectionError as error:
            if not isinstance(error.__cause__, httpx2.ConnectError):
                return self._failed(request, f"connection broke: {_line(error.__cause__ or error)}")
            raise ProviderDownError(
                f"provider {self._name}: cannot connect to {self._settings.base_url} "
                f"({_line(error.__cause__)}); correct base_url or start the server"
            ) from error
        except openai.APIStatusError as error:
            return self._refused(request, error)
        return self._read(request, str(raw.text), tries)

    @property
    def _patience_s(self) -> float:
        settings = self._settings
        return (settings.timeout_s + _MAX_RETRY_AFTER_S) * (settings.max_retries + 1)

    def _refused(self, request: Request, error: openai.APIStatusError) -> Completion:
        url = self._settings.base_url
        match error:
            case openai.AuthenticationError() | openai.PermissionDeniedError():
                raise ProviderError(
                    f"provider {self._name}: {url} refuses the key in "
                    f"{self._settings.api_key_env or 'no variable'} ({_line(error)})"
                ) from error
            case openai.NotFoundError():
                raise ProviderError(
                    f"provider {self._name}: {url} has no model {self._settings.model!r}, or no "
                    f"such path ({_line(error)})"
                ) from error
            case _:
                return self._failed(request, f"HTTP {error.status_code}: {_line(error)}")

    def _read(self, request: Request, body: str, tries: Tries) -> Completion:
        """The completion in a body, of which nothing is taken on trust."""
        try:
            answer = openai_body.read(body, self._settings)
        except MalformedError as error:
            tries.end(TryOutcome.LOST, cost_usd=error.cost_usd, said=f"malformed: {error}")
            return self._failed(request, f"malformed answer: {error}", response=body)
        tries.end(TryOutcome.ANSWERED, cost_usd=answer.cost_usd)
        kept = answer.model_dump(exclude={"cost_usd"})
        return completion_of(
            request, provider=self._name, response=body, cost_usd=answer.cost_usd or 0.0, **kept
        )

    def _failed(self, request: Request, why: str, response: str | None = None) -> Completion:
        reason = f"{ERROR_PREFIX}{why}"
        return completion_of(
            request, provider=self._name, text="", finish_reason=reason, response=response
        )


def _is_here(url: str) -> bool:
    host = httpx2.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
