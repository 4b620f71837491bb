"""Tests of the gate: what a request costs its client before it is read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from cudal1.serving.clients import Clients, add_token
from cudal1.serving.gate import BYTES_OF_A_REQUEST, Gate
from cudal1.serving.limits import Quotas, Tokens

LIMIT = 8
"""Requests of the client in a minute."""


def statuses(folder: Path, *bodies: Sequence[int], with_length: bool) -> list[int]:
    """Return the statuses of requests; a body comes in chunks of these numbers of bytes."""
    token = add_token(folder / "tokens.yaml", "alice")
    text = (folder / "tokens.yaml").read_text()
    (folder / "tokens.yaml").write_text(f"{text}  requests_per_minute: {LIMIT}\n")
    found: list[int] = []

    async def app(_: Any, receive: Any, send: Any) -> None:
        try:
            while (await receive())["more_body"]:
                pass
            status = 200
        except HTTPException as error:
            status = error.status_code
        await send({"type": "http.response.start", "status": status})

    async def each() -> None:
        gate = Gate(
            app,
            Tokens(Clients(folder / "tokens.yaml")),
            Quotas(),
            lambda *_: None,
            lambda _, status, __: found.append(status),
        )
        for body in bodies:
            messages = [
                {"body": b"x" * size, "more_body": number + 1 < len(body)}
                for number, size in enumerate(body)
            ]

            async def receive(left: list[Any] = messages) -> Any:
                return left.pop(0)

            async def send(_: Any) -> None:
                pass

            headers = [(b"authorization", f"Bearer {token}".encode())]
            if with_length:
                headers.append((b"content-length", str(sum(body)).encode()))
            scope = {"type": "http", "path": "/x", "client": ("a", 1), "headers": headers}
            await gate(scope, receive, send)

    asyncio.run(each())
    return found


@pytest.mark.parametrize("with_length", [True, False])
def test_long_bodies_count_as_several_requests(tmp_path: Path, with_length: bool) -> None:
    long = [BYTES_OF_A_REQUEST] * 4
    said = statuses(tmp_path, long, [1], [1, 1], long, [1], with_length=with_length)
    assert said[:4] == [200, 200, 200, 429]


def test_a_body_that_counts_as_more_than_a_minute_s_requests_passes_alone(tmp_path: Path) -> None:
    body = [BYTES_OF_A_REQUEST] * (LIMIT + 1)
    assert statuses(tmp_path, body, [1], with_length=True) == [200, 429]
