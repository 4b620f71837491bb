"""Tests that a bucket of a server that speaks S3's protocol holds what machines publish."""

from __future__ import annotations

import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import cudal1
from cudal1.errors import StoreError
from cudal1.ledger import Ledger
from tests.ledger.conftest import Facts
from tests.ledger.published.conftest import BUCKET, Make, publish

pytestmark = pytest.mark.slow


def refusal(address: str, endpoint: str | None) -> str:
    with pytest.raises(StoreError) as refused:
        Ledger.read(address, endpoint=endpoint)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_a_bucket_has_the_facts_of_the_ledger(
    make: Make, facts: Facts, address: str, endpoint: str
) -> None:
    data = make("a")
    publish(data, address, endpoint=endpoint)
    with Ledger.read(data) as own, Ledger.read(address, endpoint=endpoint) as shared:
        assert facts.content(shared) == facts.content(own)
        assert shared.sql("from best").equals(own.sql("from best"))


def test_publishing_to_a_bucket_again_adds_nothing(make: Make, address: str, endpoint: str) -> None:
    data = make("a")
    assert publish(data, address, endpoint=endpoint) is not None
    assert publish(data, address, endpoint=endpoint) is None


def test_writers_at_the_same_time_overwrite_nothing(
    make: Make, address: str, endpoint: str
) -> None:
    names = ("a", "b", "c", "d")
    folders = [make(name) for name in names]
    with ThreadPoolExecutor(4) as pool:
        said = pool.map(
            lambda each: publish(each[0], address, each[1], endpoint=endpoint),
            zip(folders, names, strict=True),
        )
        assert all(each is not None for each in said)
    with Ledger.read(address, endpoint=endpoint) as shared:
        (counts,) = shared.sql(
            "select count(*), count(distinct candidate_id), "
            "(select count(*) from timing_samples) from verdicts"
        ).rows()
    assert counts == (8, 8, 3 * 8 + 4 * 12)


def test_connect_takes_the_endpoint_from_the_environment(
    make: Make, address: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(make("a"), address, endpoint=endpoint)
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    assert cudal1.connect(address).sql("select count(*) from verdicts").fetchall() == [(5,)]


def test_a_whole_bucket_is_a_place_too(make: Make, endpoint: str) -> None:
    """Other tests have left files below prefixes of their own, which are foreign to it."""
    publish(make("a"), f"s3://{BUCKET}", endpoint=endpoint)
    with Ledger.read(f"s3://{BUCKET}/", endpoint=endpoint) as shared:
        assert shared.sql("select count(*) from verdicts").item() == 5


def test_a_missing_bucket_is_named_with_the_remedy(endpoint: str) -> None:
    said = refusal("s3://nowhere/prefix", endpoint)
    assert said == ("s3://nowhere/prefix: there is no such bucket: make it, or correct the name")


def test_an_empty_prefix_is_named_with_the_remedy(address: str, endpoint: str) -> None:
    said = refusal(address, endpoint)
    assert said.startswith(f"{address}: nothing is published here; run `cudal1 publish {address}`")


def _let_in(endpoint: str, num_requests: bytes) -> None:
    """Let the server take so many requests before it checks signatures."""
    plain = {"Content-Type": "text/plain"}
    asked = urllib.request.Request(f"{endpoint}/moto-api/reset-auth", num_requests, plain)
    urllib.request.urlopen(asked).close()


@pytest.fixture
def strict(endpoint: str) -> Generator[str]:
    """Return the address of the server while it checks signatures."""
    _let_in(endpoint, b"0")
    yield endpoint
    _let_in(endpoint, b"inf")


def test_refused_credentials_are_named_with_the_remedy(address: str, strict: str) -> None:
    said = refusal(address, strict)
    assert said.startswith(f"{address}: the server refuses: set AWS_ACCESS_KEY_ID and AWS_SECRET")


def test_a_server_that_does_not_answer_is_named_with_the_remedy(
    address: str, endpoint: str
) -> None:
    said = refusal(address, "http://127.0.0.1:9")
    assert said == (
        f"{address}: the server cannot be reached: check --endpoint, AWS_ENDPOINT_URL and the "
        "network"
    )


@pytest.mark.parametrize(
    ("address", "endpoint", "remedy"),
    [
        ("s3://", None, "names no bucket; write s3://BUCKET/PREFIX"),
        ("s3:///prefix", None, "names no bucket; write s3://BUCKET/PREFIX"),
        ("gs://bucket/prefix", None, "facts are read from a folder or from s3://BUCKET/PREFIX"),
        ("s3://bucket", "localhost:9000", "is no endpoint; write http://HOST:PORT or https://HOST"),
    ],
)
def test_a_wrong_address_is_named_with_the_remedy(
    address: str, endpoint: str | None, remedy: str
) -> None:
    assert refusal(address, endpoint).endswith(f": {remedy}")


def test_a_folder_has_no_endpoint(tmp_path: Path) -> None:
    assert "a folder has no endpoint" in refusal(str(tmp_path), "http://127.0.0.1:9000")
