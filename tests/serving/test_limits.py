"""Tests of the limits on requests."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cudal1.serving import limits
from cudal1.serving.clients import Client, Clients, add_token
from cudal1.serving.limits import Quotas, RefusedError, Tokens

FEW = 3


@pytest.fixture
def tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Tokens, str, str]:
    """Provide a finder of clients that lets few guesses pass, and two tokens."""
    monkeypatch.setattr(limits, "GUESSES_PER_MINUTE", FEW)
    path = tmp_path / "tokens.yaml"
    first, second = add_token(path, "alice"), add_token(path, "bob")
    return Tokens(Clients(path)), first, second


def asked(found: Tokens, *requests: tuple[str, str]) -> list[str | int]:
    """Return the client of each token and address, or the status of the refusal."""

    async def each() -> list[str | int]:
        said: list[str | int] = []
        for token, address in requests:
            try:
                said.append((await found.client_of(f"Bearer {token}", address)).name)
            except RefusedError as error:
                said.append(error.status)
        return said

    return asyncio.run(each())


GUESSES = [(f"guess {number}", "1.2.3.4") for number in range(FEW)]


def test_after_a_few_guesses_no_token_of_the_address_is_compared(
    tokens: tuple[Tokens, str, str],
) -> None:
    found, alice, _ = tokens
    said = asked(found, *GUESSES, ("guess", "1.2.3.4"), (alice, "1.2.3.4"), (alice, "5.6.7.8"))
    assert said == [401] * FEW + [429, 429, "alice"]


def test_a_guesser_locks_no_client_out_that_was_there_before(
    tokens: tuple[Tokens, str, str],
) -> None:
    found, alice, bob = tokens
    here = "1.2.3.4"
    said = asked(found, (alice, here), *GUESSES, (alice, here), (bob, here), ("guess", here))
    assert said == ["alice", *[401] * FEW, "alice", 429, 429]


def test_a_host_has_one_limit_for_all_its_addresses(tokens: tuple[Tokens, str, str]) -> None:
    found, _, bob = tokens
    guesses = [("guess", f"2001:db8::{number}") for number in range(1, FEW + 1)]
    said = asked(found, *guesses, (bob, "2001:db8::ffff"), (bob, "2001:db9::1"))
    assert said == [401] * FEW + [429, "bob"]


def test_a_header_without_the_scheme_is_no_token(tokens: tuple[Tokens, str, str]) -> None:
    found, alice, _ = tokens
    with pytest.raises(RefusedError, match="Authorization: Bearer TOKEN"):
        asyncio.run(found.client_of(alice, "1.2.3.4"))


def client(name: str = "alice", **changes: int) -> Client:
    return Client.model_validate({"name": name, "token_sha256": "0" * 64, **changes})


def test_requests_of_a_minute_are_limited_by_client() -> None:
    async def check() -> None:
        quotas, alice = Quotas(), client(requests_per_minute=4)
        await quotas.take(alice, 3)
        await quotas.take(alice)
        with pytest.raises(RefusedError) as error:
            await quotas.take(alice)
        assert (error.value.status, error.value.retry_after_s) == (429, 15)
        await quotas.take(client("bob"))

    asyncio.run(check())


def test_open_requests_are_limited_by_client_and_end() -> None:
    quotas, alice = Quotas(), client(max_open=1)
    with quotas.open(alice):
        with quotas.open(client("bob")):
            pass
        with pytest.raises(RefusedError), quotas.open(alice):
            pass
    with quotas.open(alice):
        pass
