"""The transport to an endpoint: it sees each try, and sends nothing of ours beyond the request.

The official client retries by itself. Hooks of its transport see every try before it leaves. They
give an error that came with success the status that it stands for (`openai_fault`). Redirects are
not followed, since the prompt would go to a stranger. Headers that the environment would add are
not sent, and a body has a limit.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any

import httpx2
import openai

from cudal1.billing import TryOutcome
from cudal1.llm.openai import openai_body
from cudal1.llm.openai.openai_fault import fault_in
from cudal1.llm.openai.openai_key import Key
from cudal1.llm.openai.pace import Pace
from cudal1.llm.openai.proxies import NamedProxy
from cudal1.llm.openai.spending import Tries
from cudal1.llm.provider import Request
from cudal1.settings.provider_settings import OpenAISettings

FAULT = "cudal1.fault"
"""Extension of a response: the error that came with success. The response has the error's
status."""
MAX_BODY_BYTES = 16 << 20
_KEY_HEADER = "idempotency-key"
_HEADERS = {
    "host",
    "authorization",
    "content-type",
    "content-length",
    "accept",
    "accept-encoding",
    "user-agent",
    "connection",
    "x-stainless-retry-count",
    "x-stainless-raw-response",
    _KEY_HEADER,
}
"""All headers that are sent; the client would add more, such as the environment's organisation."""
_FREE_ABOVE_499 = (500, 501, 503, 529)
"""Server errors that are free; what a gateway says (502, 504, 520 …) may have been charged."""
_DOUBTFUL_BELOW_500 = (408, 499)


class Wire:
    """The transport of one exchange."""

    def __init__(
        self, settings: OpenAISettings, pace: Pace, key: Key, proxy: NamedProxy | None
    ) -> None:
        """Prepare the transport; `proxy` stands between us and the server."""
        self._settings = settings
        self._pace = pace
        self._key = key
        self._proxy = proxy
        self._watched: dict[str, tuple[Request, Tries]] = {}

    def client(self) -> httpx2.AsyncClient:
        """Return the HTTP client with which the official client sends."""
        return openai.DefaultAsyncHttpxClient(
            event_hooks={"request": [self._on_request], "response": [self._on_response]},
            proxy=None if self._proxy is None else self._proxy.proxy,
            # certificates are the environment's; its proxies have been read
            verify=httpx2.create_ssl_context(),
            trust_env=False,
            follow_redirects=False,
        )

    def headers(self, request: Request) -> dict[str, str]:
        """Return a request's own headers; an unpacked body cannot unpack without end."""
        return {_KEY_HEADER: request.id, "accept-encoding": "identity"}

    @contextmanager
    def watching(self, request: Request, tries: Tries) -> Generator[None]:
        """Note in `tries` what leaves for the request while this is open."""
        self._watched[request.id] = (request, tries)
        try:
            yield
        finally:
            del self._watched[request.id]

    async def _on_request(self, sent: httpx2.Request) -> None:
        """Begin a try when the client does; tracing tells whether it went over the wire."""
        request, tries = self._watched[sent.headers[_KEY_HEADER]]
        for name in [name for name in sent.headers if name.lower() not in _HEADERS]:
            del sent.headers[name]
        if tries.has_begun:
            await self._pace.wait(request)
        tries.begin()

        async def traced(event: str, info: object) -> None:
            if event.endswith("send_request_headers.started"):
                tries.leave()

        sent.extensions["trace"] = traced

    async def _on_response(self, response: httpx2.Response) -> None:
        _, tries = self._watched[response.request.headers[_KEY_HEADER]]
        stream: Any = response.stream
        response.stream = Capped(stream, is_packed="content-encoding" in response.headers)
        if response.is_success:
            body = self._key.masked_text((await response.aread()).decode("utf-8", "replace"))
            if (fault := fault_in(body)) is not None:
                response.extensions[FAULT] = fault
                response.status_code = fault.status  # the client reads it, and tries again or not
                cost_usd = openai_body.cost_usd(body, self._settings)
                if cost_usd is not None:
                    outcome = TryOutcome.LOST if cost_usd else TryOutcome.REFUSED
                    said = f"HTTP {fault.status} inside a success"
                    tries.end(outcome, cost_usd=cost_usd, said=said)
        if is_free(response.status_code):
            said = f"HTTP {response.status_code}"
            tries.end(TryOutcome.REFUSED, cost_usd=0.0, said=said)


class Capped(httpx2.AsyncByteStream):
    """A body that breaks off where it becomes too long."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, is_packed: bool) -> None:
        self._stream = stream
        self._is_packed = is_packed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body's pieces."""
        if self._is_packed:
            raise httpx2.ReadError("the body is packed, though we asked for a plain one")
        size = 0
        async for piece in self._stream:
            size += len(piece)
            if size > MAX_BODY_BYTES:
                raise httpx2.ReadError(f"the body is longer than {MAX_BODY_BYTES} bytes")
            yield piece

    async def aclose(self) -> None:
        """Let go of the connection."""
        await self._stream.aclose()


def is_free(status: int) -> bool:
    """Return whether an answer of this status has surely cost nothing."""
    if status >= 500:
        return status in _FREE_ABOVE_499
    return status >= 300 and status not in _DOUBTFUL_BELOW_500


def never_connected(error: openai.APIConnectionError) -> bool:
    """Return whether the server, or the proxy before it, could not be reached."""
    return isinstance(error.__cause__, httpx2.ConnectError | httpx2.ProxyError)
