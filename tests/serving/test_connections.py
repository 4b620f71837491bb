"""Tests of the protocol that ends slow connections."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvicorn

from cudal1.serving import connections
from cudal1.serving.clients import Client
from cudal1.serving.connections import Connections, protocol_with

LIMIT_S = 60


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send(
        {"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]}
    )
    await send({"type": "http.response.body", "body": b""})


async def talk(sent: bytes, *, then: bytes = b"", known: Connections | None = None) -> bytes:
    """Return what the server says until it ends the connection; `then` follows the first answer."""
    config = uvicorn.Config(app, lifespan="off", log_level="critical", timeout_keep_alive=LIMIT_S)
    config.load()
    state = uvicorn.server.ServerState()
    protocol = protocol_with(known or Connections())
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(sent)
    found = b""
    if then:
        found = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_S)
        writer.write(then)
    try:
        found += await asyncio.wait_for(reader.read(), LIMIT_S)
    except ConnectionResetError:
        found += b"reset"
    writer.close()
    server.close()
    return found


HEAD = b"POST / HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize("sent", [b"", HEAD, HEAD + b"X: ", HEAD + b"Content-Length: 9\r\n\r\nabc"])
def test_a_request_that_does_not_become_whole_ends(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "READ_S", 0.05)
    assert asyncio.run(talk(sent)) in (b"", b"reset")


def test_the_second_request_of_a_connection_has_to_become_whole_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "READ_S", 0.2)
    found = asyncio.run(talk(HEAD + b"Content-Length: 0\r\n\r\n", then=HEAD))
    assert found.count(b"HTTP/1.1 200 OK") == 1


def test_a_whole_request_is_answered_and_may_be_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "READ_S", 30.0)
    end = HEAD + b"Connection: close\r\nContent-Length: 2\r\n\r\nab"
    found = asyncio.run(talk(HEAD + b"Content-Length: 2\r\n\r\nab", then=end))
    assert found.count(b"HTTP/1.1 200 OK") == 2


class Transport:
    """A transport that notes its end."""

    is_ended = False

    def abort(self) -> None:
        self.is_ended = True


def opened(known: Connections, *places: tuple[str, int]) -> list[Transport]:
    """Open connections and return their transports."""
    found = [Transport() for _ in places]
    for place, each in zip(places, found, strict=True):
        known.add(place, each)  # type: ignore[arg-type]
    return found


def ended(transports: list[Transport]) -> list[int]:
    """Return which of the connections were ended."""
    return [number for number, each in enumerate(transports) if each.is_ended]


ALICE = Client(name="alice", token_sha256="0" * 64, max_open=1)


def test_one_connection_too_many_ends_the_oldest_unproven_one_of_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_UNPROVEN", 2)
    known = Connections()
    mine = opened(known, ("a", 0))
    known.proven(("a", 0), ALICE)
    mine += opened(known, ("a", 1), ("a", 2), ("b", 3))
    assert ended(mine) == []
    mine += opened(known, ("a", 4))
    assert ended(mine) == [1]
    known.ended(("a", 2))
    mine += opened(known, ("a", 5))
    assert ended(mine) == [1]


def test_a_host_has_as_few_unproven_connections_with_all_its_addresses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "MAX_UNPROVEN", 2)
    known = Connections()
    assert ended(opened(known, *((f"2001:db8::{number}", number) for number in range(3)))) == [0]


def test_one_connection_too_many_of_a_client_ends_its_longest_unused() -> None:
    known, places = Connections(), [("a", number) for number in range(4)]
    mine = opened(known, *places)
    for number in (0, 1, 0, 2):
        known.proven(places[number], ALICE)
    assert ended(mine) == [1]
    known.proven(places[3], ALICE.model_copy(update={"name": "bob"}))
    assert ended(mine) == [1]
