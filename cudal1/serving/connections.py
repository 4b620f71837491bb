"""Connections that send nothing, or slowly, are ended, and never crowd others out.

uvicorn waits for ever for the rest of a request. Here a request has to be whole within a time, and
an address has few connections that no client has proven its own: one more ends the oldest. A client
has few connections, too: one more ends the one that it has not used for longest. So connections
cost the places of others of the same address or client, and the server never runs out of files.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from cudal1.serving.clients import Client
from cudal1.serving.limits import host_of

Place = tuple[str, int]
"""The other side's address and port."""
Holder = tuple[str, str]
"""A client by its name, or an address."""

READ_S = 20.0
"""Seconds in which a request has to be whole, head and body."""
MAX_UNPROVEN = 32
"""Connections of one address that no client has proven its own."""
CONNECTIONS_OF_A_REQUEST = 2
"""Connections that a client may have for each request that it may have open."""
UNREAD = (h11.IDLE, h11.SEND_BODY)
"""States of the other side while a request is not whole."""


class Connections:
    """The open connections of each client, and those of each address that no client has proven."""

    def __init__(self) -> None:
        self._of: defaultdict[Holder, OrderedDict[Place, asyncio.Transport]] = defaultdict(
            OrderedDict
        )
        """The connections of a holder, the longest unused first."""
        self._holders: dict[Place, Holder] = {}

    def add(self, place: Place, transport: asyncio.Transport) -> None:
        """Note a new connection, and end the address's oldest if there are too many."""
        self._give(place, transport, ("address", host_of(place[0])), MAX_UNPROVEN)

    def proven(self, place: Place, client: Client) -> None:
        """Note that a client uses a connection, and end its longest unused if it has too many."""
        transport = self.ended(place)
        if transport is not None:
            most = CONNECTIONS_OF_A_REQUEST * client.max_open
            self._give(place, transport, ("client", client.name), most)

    def ended(self, place: Place) -> asyncio.Transport | None:
        """Forget a connection and return it; None if it is not known."""
        holder = self._holders.pop(place, None)
        if holder is None:
            return None
        transport = self._of[holder].pop(place)
        if not self._of[holder]:
            del self._of[holder]
        return transport

    def _give(self, place: Place, transport: asyncio.Transport, holder: Holder, most: int) -> None:
        self._of[holder][place] = transport
        self._holders[place] = holder
        if len(self._of[holder]) > most:
            place, oldest = self._of[holder].popitem(last=False)
            del self._holders[place]
            oldest.abort()


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
                connections.ended(self.client)
            super().connection_lost(exc)

        def _end_waiting(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return PatientProtocol
