"""The gate before the interface finds the client of a request, and keeps it to its limits.

It is ASGI middleware, so that a request that is refused is not read: no thread, no parser and no
database sees it.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cudal1.serving.clients import Client
from cudal1.serving.limits import Quotas, RefusedError, Tokens

BYTES_OF_A_REQUEST = 16 << 10
"""Bytes of a body that count as one more request; parsing them takes up to 0.4 ms."""
TOO_LONG = "more than {} bytes; send fewer at a time"
OPEN_TO_ALL = ("/health", "/openapi.json", "/docs")
"""Paths that need no token: they tell nothing of any client."""

Proven = Callable[[tuple[str, int], Client], None]
"""A function that hears of the connection of a client, by address and port."""
Counted = Callable[[int], Awaitable[None]]
"""A function that counts requests, or refuses them."""
Observed = Callable[[str, int, float], None]
"""A function that hears of each request: the client's name or none, the status, the seconds."""


class Gate:
    """Lets the requests of known clients through, within their limits.

    Args:
        app: the interface; it finds the client in `request.state.client`.
        tokens: finds clients.
        quotas: counts requests.
        proven: hears of connections of clients.
        observed: hears of every request.
    """

    def __init__(
        self, app: ASGIApp, tokens: Tokens, quotas: Quotas, proven: Proven, observed: Observed
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._quotas = quotas
        self._proven = proven
        self._observed = observed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began, name, status = time.perf_counter(), "", 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        with ExitStack() as counting:
            try:
                if scope["type"] != "http":
                    raise RefusedError(400, "only HTTP is spoken here")
                if scope["path"] not in OPEN_TO_ALL:
                    headers = dict(scope["headers"])
                    address, port = scope.get("client") or ("", 0)
                    authorization = headers.get(b"authorization", b"").decode("latin-1")
                    client = await self._tokens.client_of(authorization, address)
                    self._proven((address, port), client)
                    name = client.name
                    counting.enter_context(self._quotas.open(client))
                    length = _length(headers.get(b"content-length", b"0"), client.max_bytes)
                    await self._quotas.take(client, 1 + length // BYTES_OF_A_REQUEST)
                    counted = partial(self._quotas.take, client)
                    receive = _limited(client.max_bytes, length, counted, receive)
                    scope.setdefault("state", {})["client"] = client
                await self._app(scope, receive, sending)
            except RefusedError as error:
                await _refuse(error, scope, receive, sending)
            finally:
                self._observed(name, status, time.perf_counter() - began)


def _length(said: bytes, max_bytes: int) -> int:
    """Return the length that a header says a body has.

    Raises:
        RefusedError: it has more bytes than are allowed.
    """
    if not said.isdigit() or len(said) > 18 or int(said) > max_bytes:
        raise RefusedError(413, TOO_LONG.format(max_bytes))
    return int(said)


def _limited(max_bytes: int, length: int, counted: Counted, receive: Receive) -> Receive:
    """Return a `receive` that reads no body of more bytes, and counts those beyond a length."""
    num_read, num_counted = 0, length // BYTES_OF_A_REQUEST

    async def counting() -> Message:
        nonlocal num_read, num_counted
        message = await receive()
        num_read += len(message.get("body", b""))
        if num_read > max_bytes:  # the interface passes no error on but this one
            raise HTTPException(413, TOO_LONG.format(max_bytes), {"connection": "close"})
        more = num_read // BYTES_OF_A_REQUEST - num_counted
        if more > 0:
            num_counted += more
            try:
                await counted(more)
            except RefusedError as error:
                headers = {"connection": "close", "retry-after": str(error.retry_after_s)}
                raise HTTPException(error.status, str(error), headers) from error
        return message

    return counting


async def _refuse(error: RefusedError, scope: Scope, receive: Receive, send: Send) -> None:
    """Say why, and end the connection: the rest of the request is not read."""
    if scope["type"] != "http":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = {"connection": "close"}
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    response = JSONResponse({"detail": str(error)}, error.status, headers)
    await response(scope, receive, send)
