"""Limits on requests: of a client, of a guesser of tokens, and of open requests."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address, ip_network
from typing import Any

from aiolimiter import AsyncLimiter

from cudal1.errors import CudaL1Error
from cudal1.serving.clients import Client, Clients, digest_of

GUESSES_PER_MINUTE = 20
"""Wrong tokens of one address in a minute; after them no token of it is compared."""
MAX_ADDRESSES = 10_000
"""Addresses that are remembered; the longest unseen is forgotten first."""
IPV6_PREFIX = 64
"""Bits of an IPv6 address that count: one host may use all addresses with these."""


class RefusedError(CudaL1Error):
    """A request that is refused before it is read.

    Args:
        status: the status of the response.
        said: what the client is told.
        retry_after_s: seconds after which it may try again; None: it need not.
    """

    def __init__(self, status: int, said: str, retry_after_s: int | None = None) -> None:
        super().__init__(said)
        self.status = status
        self.retry_after_s = retry_after_s


class Tokens:
    """Finds the client of a token, and slows guessers down.

    An address that has sent too many wrong tokens is refused for a while, right tokens too, so that
    a right guess is not told from a wrong one. A token that was right from this address before is
    excepted, so that a guesser behind the same address locks no client out.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._guesses: OrderedDict[str, AsyncLimiter] = OrderedDict()
        self._proven: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def client_of(self, authorization: str, address: str) -> Client:
        """Return the client that a request's header proves.

        Raises:
            RefusedError: it proves none, or the address has guessed too often.
        """
        scheme, _, token = authorization.partition(" ")
        token = token if scheme.lower() == "bearer" else ""
        place = host_of(address)
        proof = place, digest_of(token)
        limiter = self._guesses.get(place)
        if limiter is not None and not limiter.has_capacity() and proof not in self._proven:
            raise RefusedError(429, "too many wrong tokens from your address", 60)
        client = self._clients.find(token)
        if client is not None:
            _remember(self._proven, proof, None)
            return client
        self._proven.pop(proof, None)  # it was revoked
        if limiter is None:
            limiter = AsyncLimiter(GUESSES_PER_MINUTE, 60.0)
        _remember(self._guesses, place, limiter)
        if limiter.has_capacity():
            await limiter.acquire()
        raise RefusedError(401, "send your token: Authorization: Bearer TOKEN")


class Quotas:
    """Counts each client's requests: in a minute, and open at a time."""

    def __init__(self) -> None:
        self._limiters: dict[str, tuple[int, AsyncLimiter]] = {}
        self._open: Counter[str] = Counter()

    @contextmanager
    def open(self, client: Client) -> Iterator[None]:
        """Count a request as open.

        Raises:
            RefusedError: too many are.
        """
        if self._open[client.name] >= client.max_open:
            raise RefusedError(429, f"{client.max_open} of your requests are open; end some", 1)
        self._open[client.name] += 1
        try:
            yield
        finally:
            self._open[client.name] -= 1

    async def take(self, client: Client, amount: int = 1) -> None:
        """Count requests, one for each submission.

        Raises:
            RefusedError: there were too many in this minute.
        """
        rate, limiter = self._limiters.get(client.name, (0, None))
        if limiter is None or rate != client.requests_per_minute:
            limiter = AsyncLimiter(client.requests_per_minute, 60.0)
            self._limiters[client.name] = client.requests_per_minute, limiter
        amount = min(amount, client.requests_per_minute)
        if not limiter.has_capacity(amount):
            wait_s = max(1, round(60 * amount / client.requests_per_minute))
            raise RefusedError(429, f"more than {client.requests_per_minute} a minute", wait_s)
        await limiter.acquire(amount)


def host_of(address: str) -> str:
    """Return what one host may have: an IPv4 address, or a network of IPv6 addresses."""
    try:
        found = ip_address(address)
    except ValueError:  # a test's client, or a Unix socket
        return address
    if found.version == 4:
        return address
    return str(ip_network((found, IPV6_PREFIX), strict=False))


def _remember(known: OrderedDict[Any, Any], key: object, value: object) -> None:
    known[key] = value
    known.move_to_end(key)
    if len(known) > MAX_ADDRESSES:
        known.popitem(last=False)
