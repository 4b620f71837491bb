"""Connect one process of a training group to the stage that started it.

Both are our own processes on one machine, so messages are pickled. A process that connects proves
first that the stage has started it, with a token that only the job's file holds.
"""

from __future__ import annotations

import hmac
import pickle
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

HOST = "127.0.0.1"
_TOKEN_BYTES = 32
_POLL_S = 1.0


@dataclass(frozen=True)
class Address:
    """The port where the stage listens, and the token that a caller sends first."""

    port: int
    token: bytes


class Wire:
    """Messages over a connected socket."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._stream = connected.makefile("rwb")

    @classmethod
    def to(cls, address: Address) -> Self:
        """Return the group's end of the connection."""
        connected = socket.create_connection((HOST, address.port))
        connected.sendall(address.token)
        return cls(connected)

    def send(self, message: object) -> None:
        """Send anything that can be pickled.

        Raises:
            OSError: the other side is gone.
        """
        pickle.dump(message, self._stream)
        self._stream.flush()

    def receive(self) -> Any:
        """Return the next message.

        Raises:
            EOFError, OSError: the other side is gone.
        """
        return pickle.load(self._stream)

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()
        self._socket.close()


class Switchboard:
    """The stage's end, which waits for one caller that knows the token."""

    def __init__(self) -> None:
        self._listening = socket.create_server((HOST, 0))
        self._listening.settimeout(_POLL_S)
        self.address = Address(self._listening.getsockname()[1], secrets.token_bytes(_TOKEN_BYTES))

    def accept(self, is_alive: Callable[[], bool]) -> Wire | None:
        """Return the caller's wire, or None when no process is left that could call."""
        while is_alive():
            try:
                connected, _ = self._listening.accept()
            except TimeoutError:
                continue
            connected.settimeout(_POLL_S)  # a silent caller blocks no other
            try:
                said = connected.recv(_TOKEN_BYTES, socket.MSG_WAITALL)
            except OSError:
                said = b""
            if hmac.compare_digest(said, self.address.token):
                connected.settimeout(None)
                return Wire(connected)
            connected.close()
        return None

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()
