"""Connections that send nothing, or slowly, are ended, and never crowd others out.

uvicorn waits for ever for the rest of a request. Here a request has to be whole within a time, and
an address has few connections that no client has proven its own: one more ends the oldest. So slow
connections cost each other's places, not a client's.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

READ_S = 20.0
"""Seconds in which a request has to be whole, head and body."""
MAX_UNPROVEN = 32
"""Connections of one address that no client has proven its own."""
UNREAD = (h11.IDLE, h11.SEND_BODY)
"""States of the other side while a request is not whole."""


class Connections:
    """The open connections that no client has proven its own, by address, the oldest first."""

    def __init__(self) -> None:
        self._unproven: defaultdict[str, OrderedDict[int, asyncio.Transport]] = defaultdict(
            OrderedDict
        )

    def add(self, place: tuple[str, int], transport: asyncio.Transport) -> None:
        """Note a new connection, and end the address's oldest if there are too many."""
        mine = self._unproven[place[0]]
        mine[place[1]] = transport
        if len(mine) > MAX_UNPROVEN:
            mine.popitem(last=False)[1].abort()

    def proven(self, place: tuple[str, int]) -> None:
        """Note that a connection is a client's, or has ended."""
        mine = self._unproven.get(place[0])
        if mine is not None:
            mine.pop(place[1], None)
            if not mine:
                del self._unproven[place[0]]


def protocol_with(connections: Connections) -> type[H11Protocol]:
    """Return the protocol of uvicorn that ends slow connections."""

    class PatientProtocol(H11Protocol):
        """HTTP/1.1 with a limit on the time of a request's reading."""

        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            """Begin to wait for a request."""
            super().connection_made(transport)
            if self.client is not None:
                connections.add(self.client, transport)
            self._deadline = self.loop.call_later(READ_S, transport.abort)

        def data_received(self, data: bytes) -> None:
            """Take bytes; the first ones of a request begin its time."""
            super().data_received(data)
            if self.conn.their_state not in UNREAD:
                self._end_waiting()
            elif self._deadline is None:
                self._deadline = self.loop.call_later(READ_S, self.transport.abort)

        def connection_lost(self, exc: Exception | None) -> None:
            """Forget the connection."""
            self._end_waiting()
            if self.client is not None:
                connections.proven(self.client)
            super().connection_lost(exc)

        def _end_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return PatientProtocol
