"""A provider for any endpoint that speaks OpenAI's chat completions, through the official client.

The client retries (408, 409, 429, 5xx, timeouts, broken connections; exponential back-off that
honours Retry-After); what still fails is data. An event loop in a thread of its own keeps requests
moving while the caller judges what has arrived. It records each try and each answer at the moment
of the event. When nothing more may be asked, requests in flight are still waited for.

Every request carries its id as Idempotency-Key: a server that honours it charges once for an
answer, however often we ask. This is the package's only file with concurrency in requests.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import openai

from cudal1.billing import TryOutcome
from cudal1.candidate import Completion
from cudal1.errors import BudgetError, ProviderDownError, ProviderError
from cudal1.llm.openai import openai_body
from cudal1.llm.openai.health import Health
from cudal1.llm.openai.openai_body import MalformedError
from cudal1.llm.openai.openai_fault import UNKNOWN, Fault, words_in
from cudal1.llm.openai.openai_key import Key, api_key
from cudal1.llm.openai.openai_wire import FAULT, Wire, never_connected
from cudal1.llm.openai.pace import Pace
from cudal1.llm.openai.proxies import ProxyVariableError, proxy_for
from cudal1.llm.openai.spending import Purse, Tries
from cudal1.llm.provider import ERROR_PREFIX, Receipts, Request, completion_of
from cudal1.record import content_id
from cudal1.settings.provider_settings import OpenAISettings

_ANSWER_FIELDS = {
    "model",
    "base_url",
    "temperature",
    "top_p",
    "max_tokens",
    "max_completion_tokens",
    "reasoning_effort",
}
"""Settings that decide an answer; price, timeouts and concurrency may change for free."""

_MAX_RETRY_AFTER_S = 120.0
"""Seconds of the longest pause that a server may ask of the client."""


class OpenAIProvider:
    """A model behind an endpoint."""

    is_seeded = False

    def __init__(self, name: str, settings: OpenAISettings) -> None:
        self.name = name
        self.fingerprint = content_id("openai", settings.model_dump_json(include=_ANSWER_FIELDS))
        self._settings = settings

    @property
    def width(self) -> int:
        """The most requests in flight."""
        return self._settings.concurrency

    @contextmanager
    def open(self, receipts: Receipts) -> Generator[OpenAIExchange]:
        """Open an exchange with at most `concurrency` requests in flight.

        Raises:
            ProviderError: the key's environment variable is not set.
        """
        key = api_key(self.name, self._settings)
        exchange = OpenAIExchange(self.name, self._settings, key, receipts)
        try:
            yield exchange
        finally:
            exchange.close()


class OpenAIExchange:
    """Requests on their way to one endpoint, and answers on their way back."""

    def __init__(
        self,
        name: str,
        settings: OpenAISettings,
        key: Key,
        receipts: Receipts,
        *,
        extra_body: Callable[[Request], Mapping[str, object]] = lambda request: {},
    ) -> None:
        """Start the event loop's thread; `extra_body` adds fields for a server of our own."""
        self._name = name
        self._settings = settings
        self._key = key
        self._receipts = receipts
        self._extra_body = extra_body
        self._purse = Purse(name, settings.budget_usd, spent_usd=receipts.spent_usd(name))
        self._pace = Pace(settings)
        try:
            proxy = proxy_for(settings.base_url)
        except ProxyVariableError as error:
            raise ProviderError(f"provider {name}: {error}") from error
        self._wire = Wire(settings, self._pace, key, proxy)
        self._health = Health(name, settings, proxy)
        self._busy: set[asyncio.Task[None]] = set()
        self._workers: list[asyncio.Task[None]] = []
        self._fatal: ProviderError | None = None
        self._ended: BaseException | None = None
        self._asked: set[str] = set()
        self._waiting: asyncio.Queue[Request] = asyncio.Queue()
        self._arrived: queue.SimpleQueue[Completion | BaseException] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._work = self._loop.create_task(self._serve())
        self._thread = threading.Thread(target=self._run, name=f"provider-{name}", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> None:
        """Hand over a request and return at once."""
        assert request.id not in self._asked, "one question at a time"
        self._asked.add(request.id)
        self._loop.call_soon_threadsafe(self._waiting.put_nowait, request)

    def answer(self) -> Completion:
        """Wait for the next completion.

        Raises:
            BudgetError: see `Purse`.
            ProviderDownError: no connection, or eight failures in a row.
            ProviderError: refused key, unknown model, or nothing but refusals.
        """
        item = self._ended or self._arrived.get()
        if isinstance(item, BaseException):
            self._ended = item
            raise item
        self._asked.discard(item.id)
        return item

    def close(self) -> None:
        """Abandon the requests in flight."""
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
        async with openai.AsyncOpenAI(
            api_key=self._key.value,
            base_url=settings.base_url,
            timeout=settings.timeout_s,
            max_retries=settings.max_retries,
            http_client=self._wire.client(),
        ) as client:
            async with asyncio.TaskGroup() as group:
                for _ in range(settings.concurrency):
                    self._workers.append(group.create_task(self._ask_what_waits(client)))
            if self._fatal is not None:
                raise self._fatal

    def _stop(self, why: ProviderError) -> None:
        """Ask nothing more; requests in flight are waited for."""
        if self._fatal is None:
            self._fatal = why
            for worker in self._workers:
                if worker not in self._busy:
                    worker.cancel()

    async def _ask_what_waits(self, client: openai.AsyncOpenAI) -> None:
        me = asyncio.current_task()
        assert me is not None
        while self._fatal is None:
            request = await self._waiting.get()
            at_most_usd = openai_body.most_cost_usd(request, self._settings)
            await self._pace.wait(request)
            try:
                async with self._purse.reserved(at_most_usd or 0.0):
                    self._busy.add(me)
                    try:
                        completion = await self._ask(client, request, at_most_usd)
                    finally:
                        self._busy.discard(me)
            except ProviderError as error:
                self._stop(error)
                return
            self._arrived.put(completion)
            if (why := self._health.look(completion)) is not None:
                self._stop(why)

    async def _ask(
        self, client: openai.AsyncOpenAI, request: Request, at_most_usd: float | None
    ) -> Completion:
        """Return the completion, as it is recorded with its cost."""
        tries = Tries(
            request, self._name, at_most_usd=at_most_usd, receipts=self._receipts, purse=self._purse
        )
        with self._wire.watching(request, tries):
            try:
                completion = await self._complete(client, request, tries)
            finally:
                tries.end_unanswered("abandoned")
        completion = self._key.masked(completion)
        self._receipts.arrived(completion, tries.paid)
        return completion

    async def _complete(
        self, client: openai.AsyncOpenAI, request: Request, tries: Tries
    ) -> Completion:
        try:
            # the client's own limit is per read: a slow drip would never end
            async with asyncio.timeout(self._patience_s):
                create: Any = client.chat.completions.with_raw_response.create
                raw: Any = await create(
                    **openai_body.body_of(request, self._settings),
                    extra_body=self._extra_body(request),
                    extra_headers=self._wire.headers(request),
                )
        except BudgetError as error:
            why = _line(error)
        except openai.APITimeoutError:
            why = f"no answer within {self._settings.timeout_s:g} s"
        except TimeoutError:
            why = "the answer dripped in too slowly"
        except openai.APIConnectionError as error:
            why = f"connection broke: {_line(error.__cause__ or error)}"
            if never_connected(error) and not self._health.has_answered:
                tries.end_unanswered(why)
                why = self._health.unreachable(_line(error.__cause__ or error))
                raise ProviderDownError(why) from error
        except openai.APIStatusError as error:
            why = self._refusal(error)
        else:
            return self._read(request, raw.content, tries)
        tries.end_unanswered(why)
        return self._failed(request, why)

    @property
    def _patience_s(self) -> float:
        settings = self._settings
        return (settings.timeout_s + _MAX_RETRY_AFTER_S) * (settings.max_retries + 1)

    def _refusal(self, error: openai.APIStatusError) -> str:
        """Return the server's error in one line.

        Raises:
            ProviderError: the error means that the server will never accept us.
        """
        response, status = error.response, error.status_code
        fault: Fault | None = response.extensions.get(FAULT)
        said = words_in(self._key.masked_text(response.text)) if fault is None else fault.said
        said = said or response.reason_phrase
        why = self._health.rejection(status, said, location=response.headers.get("location"))
        if why is not None:
            raise ProviderError(why) from error
        if fault is None:
            return f"HTTP {status}: {said}"
        told = "an error" if status == UNKNOWN else f"HTTP {status}"
        return f"{told} inside a success: {said}"

    def _read(self, request: Request, content: bytes, tries: Tries) -> Completion:
        """Return the completion in a body, trusting nothing in it."""
        body = self._key.masked_text(content.decode("utf-8", "replace"))
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


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
