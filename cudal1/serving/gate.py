"""The gate before the interface finds the client of a request, and keeps it to its limits.

It is ASGI middleware, so that a request that is refused is not read: no thread, no parser and no
database sees it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cudal1.serving.limits import Quotas, RefusedError, Tokens

OPEN_TO_ALL = ("/health", "/openapi.json", "/docs")
"""Paths that need no token: they tell nothing of any client."""

Proven = Callable[[tuple[str, int]], None]
"""A function that hears of the connection of a client, by address and port."""
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
                    self._proven((address, port))
                    name = client.name
                    counting.enter_context(self._quotas.open(client))
                    await self._quotas.take(client)
                    receive = _at_most(client.max_bytes, headers.get(b"content-length"), receive)
                    scope.setdefault("state", {})["client"] = client
                await self._app(scope, receive, sending)
            except RefusedError as error:
                await _refuse(error, scope, receive, sending)
        self._observed(name, status, time.perf_counter() - began)


def _at_most(max_bytes: int, content_length: bytes | None, receive: Receive) -> Receive:
    """Return a `receive` that reads no body of more bytes.

    Raises:
        RefusedError: the header says that there are more.
    """
    said = f"more than {max_bytes} bytes; send fewer at a time"
    if content_length is not None and (
        not content_length.isdigit() or len(content_length) > 18 or int(content_length) > max_bytes
    ):
        raise RefusedError(413, said)
    num_read = 0

    async def counting() -> Message:
        nonlocal num_read
        message = await receive()
        num_read += len(message.get("body", b""))
        if num_read > max_bytes:  # the interface passes no error on but this one
            raise HTTPException(413, said, {"connection": "close"})
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
